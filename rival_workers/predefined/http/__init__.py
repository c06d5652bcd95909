"""`http_step(url="https://api.example.com/orders/{input.order_id}")`: one HTTP exchange as a step.

The arguments are checked when the workflow is registered; their templates are filled in for each attempt.
"""

from __future__ import annotations

import datetime as dt
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from rival_client.model.payload import dump
from rival_client.model.policies.policy_options import seconds
from rival_workers.definition.options import PredefinedOptions
from rival_workers.definition.steps import PlanStep, StepSpec
from rival_workers.errors import StepError
from rival_workers.predefined.template_parts import Constant, Part, signature
from rival_workers.predefined.templates import parse

if TYPE_CHECKING:
    from rival_workers.predefined.http.exchange import HttpRequest, Limits
from urllib.parse import unquote

from rival_workers.predefined.references import Reference, as_text
from rival_workers.predefined.template_parts import Text
from rival_workers.predefined.templates import parse_function, parse_text

RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
#: Methods that change something carry an idempotency key, so that the server can detect a repeated request.
KEYED = ("POST", "PUT", "PATCH")
KEY = "Idempotency-Key"
#: Below RIVAL_MAX_PAYLOAD, since JSON text grows when it is stored inside JSON.
MAX_BYTES = 512 * 1024

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def http_step(
    url: Any,
    *,
    method: str = "GET",
    headers: Any = None,
    params: Any = None,
    json: Any = None,
    data: Any = None,
    timeout: float | dt.timedelta = 30.0,
    retry_statuses: Iterable[int] = RETRY_STATUSES,
    expect: int | Iterable[int] | None = None,
    max_bytes: int = MAX_BYTES,
    allow_private: bool = False,
    follow_redirects: bool = True,
    name: str | None = None,
    **options: Unpack[PredefinedOptions],
) -> PlanStep:
    """Its result is `{"status": …, "headers": {…}, "json": …}`, with "text" instead of "json" for other responses.
    url, headers, params, json and data may contain templates ("{input.order_id}") and functions. `timeout` is for the
    whole exchange. `expect` are the statuses that are a success, by default all below 400. Timeouts, lost connections
    and `retry_statuses` are retried up to the step's `max_attempts`; everything else fails the step. Private addresses
    are refused, also after a redirect, unless `allow_private`. `options` are those of any step.
    """
    problems = list(_problems(method, timeout, max_bytes, json, data))
    function = HttpStep(
        method=str(method).upper(),
        url=parse_url(url, problems),
        headers=_parsed_mapping(headers, "headers", problems),
        params=_parsed_mapping(params, "params", problems),
        json=None if json is None else parse(json, "json", problems),
        data=None if data is None else parse(data, "data", problems),
        timeout=seconds(timeout),
        max_bytes=max_bytes,
        retry_statuses=_statuses(retry_statuses, "retry_statuses", problems),
        expect=_statuses(() if expect is None else expect, "expect", problems),
        allow_private=bool(allow_private),
        follow_redirects=bool(follow_redirects),
    )
    named = {"name": name or f"http_{str(method).lower()}", **options}
    return StepSpec(function, named, tuple(problems), only_in_plans=True)


def _problems(method: Any, timeout: Any, max_bytes: Any, json: Any, data: Any) -> Iterable[str]:
    if not isinstance(method, str) or not _TOKEN.fullmatch(method):
        yield f"option method: {method!r} is not an HTTP method"
    limit = seconds(timeout)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not (math.isfinite(limit) and limit > 0):
        yield f"option timeout: give seconds above 0, not {timeout!r}"
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        yield f"option max_bytes: give a whole number from 1 on, not {max_bytes!r}"
    if json is not None and data is not None:
        yield "json and data are both the request's body: give one"


def _parsed_mapping(value: Any, where: str, problems: list[str]) -> Part:
    if value is None:
        return Constant({})
    if not isinstance(value, Mapping) and not callable(value):
        problems.append(f"option {where}: give a dict or a function, not a {type(value).__name__}")
        return Constant({})
    return parse(value, where, problems)


def _statuses(given: Any, where: str, problems: list[str]) -> frozenset[int]:
    listed = [given] if isinstance(given, int) else list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(status, int) and 100 <= status <= 599 for status in listed):
        problems.append(f"option {where}: give statuses from 100 to 599, not {given!r}")
        return frozenset()
    return frozenset(listed)


@dataclass(frozen=True, kw_only=True)
class HttpStep:
    """The step's function."""

    method: str
    url: Part
    headers: Part
    params: Part
    json: Part | None
    data: Part | None
    timeout: float
    max_bytes: int
    retry_statuses: frozenset[int]
    expect: frozenset[int]
    allow_private: bool
    follow_redirects: bool

    @property
    def __signature__(self) -> inspect.Signature:
        parts = (self.url, self.headers, self.params, self.json, self.data)
        return signature(part for part in parts if part is not None)

    def __call__(self, ctx: Any, **_named: Any) -> dict[str, Any]:
        # httpx is imported by the first attempt, not with the workflow file.
        from rival_workers.predefined.http.exchange import exchange

        return exchange(self._request(ctx), self._limits())

    def _limits(self) -> Limits:
        from rival_workers.predefined.http.exchange import Limits

        return Limits(
            self.timeout, self.max_bytes, self.retry_statuses, self.expect, self.allow_private, self.follow_redirects
        )

    def _request(self, ctx: Any) -> HttpRequest:
        from rival_workers.predefined.http.exchange import HttpRequest

        headers = _filled_headers(self.headers.fill(ctx))
        given = {name.lower() for name in headers}
        if self.method in KEYED and KEY.lower() not in given:
            headers[KEY] = quote(f"{ctx.run.run_id}:{ctx.run.step}", safe=":/[]!.")
        content, form = self._body(ctx)
        if self.json is not None and "content-type" not in given:
            headers["Content-Type"] = "application/json"
        params = {name: value for name, value in self.params.fill(ctx).items() if value is not None}
        return HttpRequest(self.method, _filled_url(self.url.fill(ctx)), params, headers, content, form)

    def _body(self, ctx: Any) -> tuple[bytes | None, Mapping[str, Any] | None]:
        if self.json is not None:
            return dump(self.json.fill(ctx), what="the request's json").encode(), None
        data = None if self.data is None else self.data.fill(ctx)
        if isinstance(data, Mapping):
            return None, data
        return (data.encode() if isinstance(data, str) else data), None


def _filled_url(url: Any) -> str:
    if not isinstance(url, str):
        raise StepError(f"the function for url returned a {type(url).__name__}, not a string")
    return url


def _filled_headers(headers: Any) -> dict[str, str]:
    filled = {str(name): str(value).strip() for name, value in headers.items() if value is not None}
    for name, value in filled.items():
        if not _TOKEN.fullmatch(name):
            raise StepError(f"{name!r} cannot be the name of a header")
        if not _HEADER_VALUE.fullmatch(value):
            raise StepError(f"the value of header {name} contains a line break or another control character")
    return filled


# -- the URL ----------------------------------------------------------------------------------------------

_URL_START = re.compile(r"https?://[^/?#{}\s]+(?P<path>[/?#])?", re.IGNORECASE)
_DOT_SEGMENTS = (".", "..")


@dataclass(frozen=True)
class UrlTemplate:
    """A URL with templates. A filled-in value is data: it changes neither the host nor the directory of the path."""

    text: Text

    @property
    def names(self) -> frozenset[str]:
        return self.text.names

    def fill(self, ctx: Any) -> str:
        url = ""
        for piece in self.text.pieces:
            url += piece if isinstance(piece, str) else self._value(piece, ctx, in_path="?" not in url)
        if self.names and any(part in _DOT_SEGMENTS for part in re.split(r"[/\\]", unquote(url.partition("?")[0]))):
            raise StepError("the filled-in path of the URL contains a . or .. segment: a value must not change it")
        return url

    def _value(self, reference: Reference, ctx: Any, in_path: bool) -> str:
        value = as_text(reference, reference.resolve(ctx))
        if in_path and not value:
            raise StepError(f"template {{{reference.text}}} is empty: that would change the path of the URL")
        return quote(value, safe="")


def parse_url(url: Any, problems: list[str]) -> Part:
    if callable(url):
        return parse_function(url, "url", problems)
    text = parse_text(url, "url", problems) if isinstance(url, str) else Text(())
    first = text.pieces[0] if text.pieces else ""
    begins = _URL_START.match(first) if isinstance(first, str) else None
    if begins is None or (len(text.pieces) > 1 and not begins["path"]):
        problems.append(
            "url: give http:// or https://, a host and a path; templates only after the host. "
            "If the host itself varies, give a function: url=lambda input: …"
        )
    return UrlTemplate(text)
