"""One HTTP exchange: a request that is filled in, an answer that is judged and cut to JSON. Holds no secrets in errors:
they name the method, the host and the status, nothing else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from rival_workers.errors import StepError
from rival_workers.predefined.http_guard import Deadline, GuardedTransport, OutOfTime, Refused

MOST_REDIRECTS = 10
#: Would be stored with the result, and is as good as a password.
_KEPT_OUT = ("set-cookie", "set-cookie2")
_GZIP_OR_ZLIB = 47
_PASSING = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError)


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
class Ask:
    """A request, all filled in."""

    method: str
    url: str
    params: Mapping[str, Any]
    headers: Mapping[str, str]
    content: bytes | None
    form: Mapping[str, Any] | None


def exchange(ask: Ask, limits: Limits) -> dict[str, Any]:
    url = _url(ask)
    where = f"{ask.method} {url.host}"
    with Deadline(limits.timeout) as deadline:
        try:
            return _exchange(ask, url, limits, deadline)
        except Refused as error:
            raise StepError(f"{where}: {error}") from None
        except (OutOfTime, *_PASSING) as error:
            raise StepError(f"{where}: {_reason(error, deadline, limits)}", behavior="retry") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            raise StepError(f"{where}: the exchange is not possible ({type(error).__name__})") from None


def _url(ask: Ask) -> httpx.URL:
    try:
        url = httpx.URL(ask.url)
        url = url.copy_merge_params(dict(ask.params)) if ask.params else url
    except (httpx.InvalidURL, TypeError):
        raise StepError("http_step: the URL, as it was filled in, is none") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise StepError("http_step: the URL must begin with http:// or https:// and a host")
    return url


def _reason(error: Exception, deadline: Deadline, limits: Limits) -> str:
    try:
        deadline.check()
    except OutOfTime:
        return f"took longer than {limits.timeout:g} s"
    return f"no answer ({type(error).__name__}{f': {error}' if isinstance(error, httpcore.ConnectError) else ''})"


def _exchange(ask: Ask, url: httpx.URL, limits: Limits, deadline: Deadline) -> dict[str, Any]:
    transport = GuardedTransport(url, ask.headers, deadline, limits.allow_private)
    # Proxies and passwords of the environment are not for the steps: a proxy would also resolve names by itself.
    client = httpx.Client(
        transport=transport, trust_env=False, timeout=limits.timeout, max_redirects=MOST_REDIRECTS,
        follow_redirects=limits.follow_redirects, headers={"User-Agent": "rival", "Accept-Encoding": "gzip, deflate"},
    )  # fmt: skip
    with (
        client,
        client.stream(ask.method, url, headers=dict(ask.headers), content=ask.content, data=ask.form) as answer,
    ):
        _judge(answer, limits)
        body = _body(answer, limits.max_bytes)
        deadline.check()
    return {"status": answer.status_code, "headers": _headers(answer), **_content(answer, body)}


def _judge(answer: httpx.Response, limits: Limits) -> None:
    status = answer.status_code
    if status in limits.expect or (not limits.expect and status < 400):
        return
    said = f"{answer.request.method} {answer.url.host} answered {status} {answer.reason_phrase}".strip()
    if status in limits.retry_statuses:
        after = answer.headers.get("retry-after", "")
        wish = f"; it asks to be left alone for {after} s" if after.isdigit() and len(after) < 10 else ""
        raise StepError(said + wish, behavior="retry")
    expected = f"; expected {', '.join(map(str, sorted(limits.expect)))}" if limits.expect else ""
    raise StepError(said + expected)


# -- the body ---------------------------------------------------------------------------------------------


def _body(answer: httpx.Response, most: int) -> bytes:
    """At most so many bytes, before and after they are unpacked: a small answer can be a large one, packed."""
    read = bytearray()
    for chunk in answer.iter_raw():
        read += chunk
        if len(read) > most:
            raise _too_large(answer, most)
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity" or not read:
        return bytes(read)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(f"the answer is packed in a way that was not asked for ({encoding[:40]})")
    try:
        unpacked = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(bytes(read), most + 1)
    except zlib.error:
        raise Refused("the answer cannot be unpacked") from None
    if len(unpacked) > most:
        raise _too_large(answer, most)
    return unpacked


def _too_large(answer: httpx.Response, most: int) -> Refused:
    return Refused(
        f"the answer of {answer.url.host} has more than {most} bytes. Ask for less, or give max_bytes=… "
        "(a result is limited by RIVAL_MAX_PAYLOAD, too)."
    )


def _headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in _KEPT_OUT}


def _content(answer: httpx.Response, body: bytes) -> dict[str, Any]:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return {"json": json.loads(body, parse_constant=_no_json)}
        except ValueError:
            pass
    # Postgres keeps no NUL in a text.
    return {"text": body.decode(_charset(answer), "replace").replace("\x00", "\ufffd")}


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _charset(answer: httpx.Response) -> str:
    try:
        "".encode(answer.charset_encoding or "utf-8")
    except (LookupError, ValueError):
        return "utf-8"
    return answer.charset_encoding or "utf-8"
