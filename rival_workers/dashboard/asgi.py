"""The dashboard as an ASGI application: the API of the route table, the files for browsers, the shell for all pages.

Checks and headers that concern every answer are in `Shield`, which is outermost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rival_workers.dashboard.board import Board
from rival_workers.dashboard.forwarded import HOST_PATTERN
from rival_workers.dashboard.problem_json import Refused, refused
from rival_workers.dashboard.requests import endpoint, problem_response
from rival_workers.dashboard.route import Route
from rival_workers.dashboard.static_files import StaticFiles, file_endpoint, shell_endpoint

API = "/api/v1"
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def application(board: Board, table: Sequence[Route]) -> ASGIApp:
    files = StaticFiles()
    routes = [
        StarletteRoute("/healthz", _health, methods=["GET"]),
        StarletteRoute("/static/{version}/{name:path}", file_endpoint(files), methods=["GET"]),
        *(StarletteRoute(API + one.path, endpoint(board, one), methods=[one.method]) for one in table),
        StarletteRoute("/{page:path}", shell_endpoint(files, board), methods=["GET"]),
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _any_error}
    return Shield(Starlette(routes=routes, exception_handlers=handlers), board)


# -- other answers --------------------------------------------------------------------------------------------


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    detail = {404: "This resource does not exist.", 405: "This method does not exist here."}.get(status, str(error))
    return problem_response(Refused(status, "NotFound" if status == 404 else "BadRequest", detail, headers=headers))


async def _any_error(_: Request, error: Exception) -> Response:
    return problem_response(refused(error))


# -- every answer -----------------------------------------------------------------------------------------


class Shield:
    """Answers only to the hosts it knows (a page of another site can make its own name point here), and gives each
    answer the headers that restrict what a browser does."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app, self._hosts, self._forwarded = app, board.options.hosts, board.options.forwarded
        self.board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _with_defaults(message["headers"])}
            await send(message)

        try:
            scope = self._forwarded.applied(scope) if self._forwarded is not None else scope
            app: ASGIApp = self._app if self._is_known(scope) else _unknown_host
        except Refused as problem:
            app = problem_response(problem)
        await app(scope, receive, send_with_headers)

    def _is_known(self, scope: Scope) -> bool:
        if self._hosts is None:
            return True
        hosts = [text.decode("latin-1") for name, text in scope["headers"] if name == b"host"]
        # The port behind the name goes into the commands of answers, so it must not contain anything else.
        is_plain = len(hosts) == 1 and HOST_PATTERN.fullmatch(hosts[0]) is not None
        return is_plain and _name(hosts[0]).lower() in self._hosts


def _with_defaults(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = {name.lower().decode("latin-1") for name, _ in headers}
    return [*headers, *((name.encode(), text.encode()) for name, text in _HEADERS.items() if name not in given)]


def _name(host: str) -> str:
    """Without the port; an address of version 6 is in brackets."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


async def _unknown_host(scope: Scope, receive: Receive, send: Send) -> None:
    detail = "The dashboard does not answer to this host name: start it with --allow-host NAME."
    await problem_response(Refused(421, "UnknownHost", detail))(scope, receive, send)
