"""`http_step` against a real server on this machine: what is sent, what comes back, and what the guard refuses."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from rival_workers import DefinitionError, StepError, embedded, http_step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.predefined.http import guard as http_guard
from tests.support.inline import Clock, Inline, opened
from tests.support.output import is_printed
from tests.support.web import Web, serving

CTX = SimpleNamespace(
    input={"id": "a/b", "secret": "s3cret"}, run=SimpleNamespace(run_id="run-1", step="lines[3]/send")
)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


def ask(url: Any, **options: Any) -> dict[str, Any]:
    """The step's function, as an attempt calls it."""
    spec = http_step(url, **{"allow_private": True, **options})
    assert spec.problems == ()
    result = spec.function(ctx=CTX)
    assert isinstance(result, dict)
    return result


def refused(url: Any, **options: Any) -> StepError:
    with pytest.raises(StepError) as error:
        ask(url, **options)
    return error.value


# -- what is sent -----------------------------------------------------------------------------------------


def test_templates_fill_url_query_headers_and_body(web: Web) -> None:
    web.answer("/o/a%2Fb")
    ask(
        web.url("/o/{input.id}?q={input.secret}"),
        method="post",
        params={"n": 1, "left_out": None},
        headers={"X-Run": "{run.run_id}", "X-None": None},
        json={"id": "{input.id}", "n": lambda run: len(run.run_id)},
    )
    [asked] = web.asked
    assert (asked.method, asked.path) == ("POST", "/o/a%2Fb?q=s3cret&n=1")
    assert (asked.headers["x-run"], asked.headers["content-type"]) == ("run-1", "application/json")
    assert "x-none" not in asked.headers
    assert json.loads(asked.body) == {"id": "a/b", "n": 5}


def test_data_is_a_form_or_a_raw_body(web: Web) -> None:
    web.answer("/form")
    ask(web.url("/form"), method="POST", data={"id": "{input.id}"})
    ask(web.url("/form"), method="POST", data="raw {input.id}")
    assert [asked.body for asked in web.asked] == [b"id=a%2Fb", b"raw a/b"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_what_changes_something_has_the_same_key_at_every_attempt(web: Web, method: str) -> None:
    web.answer("/x")
    ask(web.url("/x"), method=method)
    ask(web.url("/x"), method=method, headers={"idempotency-key": "mine"})
    assert [asked.headers["idempotency-key"] for asked in web.asked] == ["run-1:lines[3]/send", "mine"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_can_be_repeated_has_no_key(web: Web, method: str) -> None:
    web.answer("/x")
    ask(web.url("/x"), method=method)
    assert "idempotency-key" not in web.asked[0].headers


def test_a_line_break_cannot_smuggle_a_header_in(web: Web) -> None:
    error = refused(web.url("/x"), headers={"X-A": lambda: "s3cret\r\nX-B: 1"})
    assert str(error) == "the value of header X-A contains a line break or another control character"
    assert web.asked == []


# -- what comes back --------------------------------------------------------------------------------------


def test_json_comes_back_as_json_and_anything_else_as_text(web: Web) -> None:
    web.answer("/json", b'{"a": [1]}', Content_Type="application/problem+json; charset=utf-8", Set_Cookie="s=1")
    web.answer("/text", "grün\x00".encode("latin-1"), Content_Type="text/plain; charset=latin-1")
    web.answer("/odd", b"NaN", Content_Type="application/json")
    web.answer("/packed", gzip.compress(b'{"b": 2}'), Content_Type="application/json", Content_Encoding="gzip")
    found = ask(web.url("/json"))
    assert (found["status"], found["json"], "text" in found) == (200, {"a": [1]}, False)
    assert "set-cookie" not in found["headers"]
    assert ask(web.url("/text"))["text"] == "grün\ufffd"
    assert ask(web.url("/odd"))["text"] == "NaN"
    assert ask(web.url("/packed"))["json"] == {"b": 2}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_status_that_may_pass_is_tried_again(web: Web, status: int) -> None:
    web.answer("/x", status=status, Retry_After="17")
    error = refused(web.url("/x"))
    assert error.behavior == "retry"
    assert str(error) == f"GET 127.0.0.1 answered {status} {HTTPStatus(status).phrase}; Retry-After is 17 s"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("17", 17),
        ("0", 0),
        ("soon", None),
        ("-5", None),
        ("99999999999999999999", None),
    ],
    ids=["seconds", "now", "word", "negative", "huge"],
)
def test_retry_after_is_read_as_seconds(web: Web, header: str, seconds: float | None) -> None:
    web.answer("/x", status=503, Retry_After=header)
    assert refused(web.url("/x")).retry_after == seconds


def test_a_date_in_retry_after_becomes_the_seconds_until_then(web: Web) -> None:
    when = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=10)).replace(microsecond=0)
    web.answer("/x", status=503, Retry_After=format_datetime(when, usegmt=True))
    before = dt.datetime.now(dt.UTC)
    found = refused(web.url("/x")).retry_after
    assert found is not None
    after = dt.datetime.now(dt.UTC)
    assert round((when - after).total_seconds(), 3) <= found <= round((when - before).total_seconds(), 3)


def test_a_date_that_has_passed_means_to_retry_at_once(web: Web) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    web.answer("/x", status=503, Retry_After=format_datetime(past, usegmt=True))
    assert refused(web.url("/x")).retry_after == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501])
def test_any_other_failure_stops_and_says_method_host_and_status_only(web: Web, status: int) -> None:
    web.answer("/x", b"s3cret", status=status)
    url = web.url("/x?token={input.secret}").replace("//", "//user:s3cret@")
    error = refused(url, method="DELETE", headers={"Authorization": "Bearer s3cret"})
    assert error.behavior == "stop"
    assert str(error) == f"DELETE 127.0.0.1 answered {status} {HTTPStatus(status).phrase}"


def test_what_is_expected_is_a_success_and_nothing_else(web: Web) -> None:
    web.answer("/gone", status=404)
    web.answer("/busy", status=503)
    web.answer("/ok")
    assert ask(web.url("/gone"), expect=(200, 404))["status"] == 404
    assert ask(web.url("/busy"), expect=503)["status"] == 503
    assert str(refused(web.url("/ok"), expect=201)) == "GET 127.0.0.1 answered 200 OK; expected 201"
    assert refused(web.url("/busy"), retry_statuses=()).behavior == "stop"


def test_a_refused_connection_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = refused(f"http://127.0.0.1:{taken.getsockname()[1]}/?token=s3cret")
    assert error.behavior == "retry"
    assert "s3cret" not in str(error)


# -- limits -----------------------------------------------------------------------------------------------


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65_536)


def trickling_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    trickle(handler)


def trickling_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    trickle(handler)


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """Never silent for long: no single read takes more than a moment. It ends when the client cuts the connection."""
    while True:
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.02)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's side of a connection that is cut."""
    monkeypatch.setattr("socketserver.BaseServer.handle_error", lambda *_: None)


TOO_LARGE = (
    "GET 127.0.0.1: the response has more than 100,000 bytes. Request less, or give max_bytes=… "
    "(RIVAL_MAX_PAYLOAD also limits the result)."
)


def test_an_answer_that_is_too_large_is_cut_off_while_it_comes(web: Web, quiet: None) -> None:
    web.answers["/endless"] = endless
    error = refused(web.url("/endless"), max_bytes=100_000)
    assert error.behavior == "stop"
    assert str(error) == TOO_LARGE


def test_a_small_answer_that_unpacks_to_a_large_one_is_refused(web: Web) -> None:
    web.answer("/bomb", gzip.compress(b"0" * 5_000_000), Content_Encoding="gzip")
    assert str(refused(web.url("/bomb"), max_bytes=100_000)) == TOO_LARGE


@pytest.mark.parametrize("slow", [trickling_body, trickling_headers])
def test_a_slow_answer_is_ended_in_time_although_every_read_is_quick(web: Web, quiet: None, slow: Any) -> None:
    web.answers["/slow"] = slow
    error = refused(web.url("/slow"), timeout=0.4)
    assert error.behavior == "retry"
    assert str(error) == "GET 127.0.0.1: took longer than 0.4 s"


def test_a_silent_server_is_left_in_time(web: Web) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = refused(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.3)
    assert error.behavior == "retry"
    assert str(error) == "GET 127.0.0.1: took longer than 0.3 s"


# -- the guard --------------------------------------------------------------------------------------------


def private(host: str, *, asked: str | None = None) -> str:
    """The whole error. `asked`: the host of the first request."""
    return (
        f"GET {asked or host}: {host} is a private address or resolves to one, and is refused: an input must not reach "
        "your internal network. If this is intended, give http_step(…, allow_private=True)."
    )


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_this_machine_is_refused_however_it_is_written(web: Web, host: str) -> None:
    web.answer("/x")
    error = refused(web.url("/x", host), allow_private=False)
    assert error.behavior == "stop"
    assert str(error) == private(host.strip("[]"))
    assert web.asked == []


def resolving(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> list[str]:
    """Names that only this test knows; everything else is resolved as always. What was looked up is returned."""
    really, looked_up = socket.getaddrinfo, []

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        looked_up.append(host)
        found = names.get(host)
        if found is None:
            return really(host, port, *args, **kwargs)
        address = found.pop(0) if len(found) > 1 else found[0]
        return really(address, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return looked_up


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "fd00::1"])
def test_a_name_that_leads_to_a_private_address_is_refused(
    web: Web, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    web.answer("/x")
    resolving(monkeypatch, {"inside.example": [address]})
    assert str(refused(web.url("/x", "inside.example"), allow_private=False)) == private("inside.example")
    assert web.asked == []


def test_the_address_that_was_checked_is_the_one_connected_to(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that answers "public" first and "this machine" afterwards gains nothing: it is asked once."""
    web.answer("/x")
    connected: list[Any] = []

    def create_connection(address: Any, *_: Any, **__: Any) -> Any:
        connected.append(address)
        raise OSError("no way out of a test")

    looked_up = resolving(monkeypatch, {"rebinding.example": ["8.8.8.8", "127.0.0.1"]})
    monkeypatch.setattr(socket, "create_connection", create_connection)
    assert refused(web.url("/x", "rebinding.example"), allow_private=False).behavior == "retry"
    assert connected == [("8.8.8.8", web.port)]
    assert looked_up.count("rebinding.example") == 1


@pytest.fixture
def half_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 counts as public here, everything else as it is: a server of ours plays the one outside."""
    really = http_guard.is_private
    monkeypatch.setattr(http_guard, "is_private", lambda address: address != "127.0.0.1" and really(address))


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.2:{port}/x", "http://[::1]:{port}/x"]
)
def test_a_redirect_to_a_private_address_is_refused(web: Web, half_public: None, target: str) -> None:
    web.answer("/x")
    web.answer("/away", status=302, Location=target.format(port=web.port))
    error = refused(web.url("/away"), allow_private=False)
    assert error.behavior == "stop"
    assert str(error) == private(urlsplit(target.format(port=1)).hostname or "", asked="127.0.0.1")
    assert [asked.path for asked in web.asked] == ["/away"]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"])
def test_a_redirect_to_another_protocol_is_refused(web: Web, target: str) -> None:
    web.answer("/away", status=302, Location=target)
    assert refused(web.url("/away")).behavior == "stop"


def test_redirects_are_followed_to_an_end_or_not_at_all(web: Web) -> None:
    web.answer("/away", status=307, Location="/there")
    web.answer("/there", b"here")
    web.answer("/round", status=302, Location="/round")
    assert ask(web.url("/away"))["text"] == "here"
    assert ask(web.url("/away"), follow_redirects=False)["status"] == 307
    assert refused(web.url("/round")).behavior == "stop"


def test_another_host_does_not_get_the_headers_that_were_for_the_first(web: Web) -> None:
    web.answer("/there")
    web.answer("/away", status=307, Location=web.url("/there", "localhost"))
    web.answer("/same", status=307, Location="/there")
    ask(web.url("/same"), headers={"X-Api-Key": "s3cret", "Authorization": "s3cret"})
    ask(web.url("/away"), method="POST", headers={"X-Api-Key": "s3cret", "Authorization": "s3cret"})
    same, other = (asked.headers for asked in web.asked if asked.path == "/there")
    assert (same["x-api-key"], same["authorization"]) == ("s3cret", "s3cret")
    assert not {"x-api-key", "authorization", "idempotency-key"} & set(other)


def test_a_proxy_of_the_environment_is_not_used(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.answer("/x")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask(web.url("/x"))["status"] == 200


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
@pytest.mark.parametrize(("name", "status"), [("tls.example", 200), ("other.example", None)])
def test_a_certificate_is_checked_against_the_name_and_not_the_address(
    web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, status: int | None
) -> None:
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    files = ["-addext", "subjectAltName=DNS:tls.example", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *make.split(), *files], cwd=tmp_path, check=True, capture_output=True)
    resolving(monkeypatch, {name: ["127.0.0.1"]})
    monkeypatch.setattr(http_guard, "_ssl_context", lambda: ssl.create_default_context(cafile=tmp_path / "cert.pem"))
    refusal = re.compile(
        rf"GET {name}: no response \(ConnectError: \[SSL: CERTIFICATE_VERIFY_FAILED\].* for '{name}'.*\)"
    )
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with serving(server_side) as secure:
        secure.answer("/x")
        url = secure.url("/x", name).replace("http:", "https:")
        if status:
            assert ask(url)["status"] == status
        else:
            assert refusal.fullmatch(str(refused(url)))
            assert secure.asked == []


# -- in a workflow ----------------------------------------------------------------------------------------


def test_a_step_that_was_turned_away_is_tried_again_as_it_says(web: Web, sqlite_url: str) -> None:
    clock = Clock()
    web.answer("/x", status=503)
    with opened(lambda: Inline(sqlite_url, clock=clock)) as inline:
        inline.define("w", http_step(web.url("/x"), allow_private=True, max_attempts=3, base_delay=10, name="call"))
        run_id = inline.rival.run("w").run_id
        inline.drain()
        assert inline.rival.state(run_id).steps[0].status == "waiting_retry"
        web.answer("/x", b"2", Content_Type="application/json")
        clock.advance(11)
        inline.drain()
        assert inline.rival.result(run_id).result["json"] == 2
        assert inline.rival.state(run_id).steps[0].attempts == 2


def test_it_runs_in_library_mode_and_the_next_step_sees_its_result(web: Web, tmp_path: Path) -> None:
    def read(last_step, steps) -> list[Any]:  # type: ignore[no-untyped-def]
        return [last_step.result["json"], steps.http_get.result["status"]]

    registry = Registry()
    registry.add(define_workflow("w", [http_step(web.url("/o/{input[id]}"), allow_private=True), read]))
    web.answer("/o/7", b'{"n": 7}', Content_Type="application/json")
    with embedded(tmp_path / "app.db", registry=registry) as rival:
        assert rival.wait("w", rival.run("w", {"id": 7}).run_id, timeout=20).result == [{"n": 7}, 200]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "GET /x"}, "option method: 'GET /x' is not an HTTP method"),
        ({"timeout": 0}, "option timeout: give seconds above 0, not 0"),
        ({"max_bytes": "1M"}, "option max_bytes: give a whole number from 1 on, not '1M'"),
        ({"json": {}, "data": {}}, "json and data are both the request's body: give one"),
        ({"headers": "X: y"}, "option headers: give a dict or a function, not a str"),
        ({"expect": 99}, "option expect: give statuses from 100 to 599, not 99"),
        ({"retry_statuses": ["500"]}, "option retry_statuses: give statuses from 100 to 599, not ['500']"),
        ({"retries": 3}, "unknown option 'retries' (did you mean 'max_retries'?); known are name, …"),
        ({"name": "a b"}, "step name 'a b': use letters, digits, _, - and .; give one with step(…, name=…)"),
    ],
)
def test_what_makes_no_sense_is_refused_at_registration(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as error:
        define_workflow("w", [http_step("https://example.com/", **options)])
    assert is_printed([f"workflow 'w': steps[0]: {said}"], error.value.problems[:1])
