"""One HTTP exchange: sends a request, checks the status and converts the response to JSON. Errors contain no secrets:
only the method, the host and the status.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from rival_client.model.durations import duration_text
from rival_workers.engine.retry_after import seconds_to_wait
from rival_workers.errors import StepError
from rival_workers.predefined.http.deadline import Deadline, DeadlineExceeded
from rival_workers.predefined.http.guard import GuardedTransport, Refused

MAX_REDIRECTS = 10
#: Not stored with the result: a session cookie is equivalent to a password.
_HIDDEN_HEADERS = ("set-cookie", "set-cookie2")
_GZIP_OR_ZLIB = 47
_TRANSIENT = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError)


@dataclass(frozen=True)
class Limits:
    timeout: float
    max_bytes: int
    retry_statuses: frozenset[int]
    #: Statuses that are a success; empty: all below 400.
    expect: frozenset[int]
    allow_private: bool
    follow_redirects: bool


@dataclass(frozen=True)
class HttpRequest:
    """A request with all templates filled in."""

    method: str
    url: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]
    content: bytes | None
    form: Mapping[str, Any] | None


def exchange(request: HttpRequest, limits: Limits) -> dict[str, Any]:
    url = _url(request)
    where = f"{request.method} {url.host}"
    with Deadline(limits.timeout) as deadline:
        try:
            return _exchange(request, url, limits, deadline)
        except Refused as error:
            raise StepError(f"{where}: {error}") from None
        except (DeadlineExceeded, *_TRANSIENT) as error:
            raise StepError(f"{where}: {_reason(error, deadline, limits)}", behavior="retry") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            raise StepError(f"{where}: the exchange is not possible ({type(error).__name__})") from None


def _url(request: HttpRequest) -> httpx.URL:
    try:
        url = httpx.URL(request.url)
        url = url.copy_merge_params(dict(request.params)) if request.params else url
    except (httpx.InvalidURL, TypeError):
        raise StepError("http_step: the URL is invalid after it was filled in") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise StepError("http_step: the URL must begin with http:// or https:// and a host")
    return url


def _reason(error: Exception, deadline: Deadline, limits: Limits) -> str:
    try:
        deadline.check()
    except DeadlineExceeded:
        return f"took longer than {duration_text(limits.timeout)}"
    return f"no response ({type(error).__name__}{f': {error}' if isinstance(error, httpcore.ConnectError) else ''})"


def _exchange(request: HttpRequest, url: httpx.URL, limits: Limits, deadline: Deadline) -> dict[str, Any]:
    transport = GuardedTransport(url, request.headers, deadline, limits.allow_private)
    # Without proxies and passwords of the environment: a proxy would resolve names itself, past the address check.
    client = httpx.Client(
        transport=transport,
        trust_env=False,
        timeout=limits.timeout,
        max_redirects=MAX_REDIRECTS,
        follow_redirects=limits.follow_redirects,
        headers={"User-Agent": "rival", "Accept-Encoding": "gzip, deflate"},
    )
    with (
        client,
        client.stream(
            request.method, url, headers=dict(request.headers), content=request.content, data=request.form
        ) as response,
    ):
        _check_status(response, limits)
        body = _body(response, limits.max_bytes)
        deadline.check()
    return {"status": response.status_code, "headers": _headers(response), **_content(response, body)}


def _check_status(response: httpx.Response, limits: Limits) -> None:
    status = response.status_code
    if status in limits.expect or (not limits.expect and status < 400):
        return
    message = f"{response.request.method} {response.url.host} answered {status} {response.reason_phrase}".strip()
    if status in limits.retry_statuses:
        after = seconds_to_wait(response.headers.get("retry-after", ""))
        wait = "" if after is None else f"; Retry-After is {duration_text(after)}"
        raise StepError(message + wait, behavior="retry", retry_after=after, code=f"http.{status}")
    expected = f"; expected {', '.join(map(str, sorted(limits.expect)))}" if limits.expect else ""
    raise StepError(message + expected, code=f"http.{status}")


# -- the body ---------------------------------------------------------------------------------------------


def _body(response: httpx.Response, max_bytes: int) -> bytes:
    """At most `max_bytes`, both before and after decompression: a small response can decompress to a large one."""
    raw = bytearray()
    for chunk in response.iter_raw():
        raw += chunk
        if len(raw) > max_bytes:
            raise _too_large(max_bytes)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity" or not raw:
        return bytes(raw)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(f"the response has a content encoding that was not requested ({encoding[:40]})")
    try:
        decompressed = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(bytes(raw), max_bytes + 1)
    except zlib.error:
        raise Refused("the response cannot be decompressed") from None
    if len(decompressed) > max_bytes:
        raise _too_large(max_bytes)
    return decompressed


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        f"the response has more than {max_bytes:,} bytes. Request less, or give max_bytes=… "
        "(RIVAL_MAX_PAYLOAD also limits the result)."
    )


def _headers(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in _HIDDEN_HEADERS}


def _content(response: httpx.Response, body: bytes) -> dict[str, Any]:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return {"json": json.loads(body, parse_constant=_reject_constant)}
        except ValueError:
            pass
    # Postgres cannot store NUL in text.
    return {"text": body.decode(_charset(response), "replace").replace("\x00", "\ufffd")}


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _charset(response: httpx.Response) -> str:
    try:
        "".encode(response.charset_encoding or "utf-8")
    except (LookupError, ValueError):
        return "utf-8"
    return response.charset_encoding or "utf-8"
