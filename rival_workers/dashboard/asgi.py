"""The dashboard as an ASGI application: the API of the route table, the files for browsers, the shell for all pages.

Checks and headers that concern every answer are in `Shield`, which is outermost.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rival_client.db.read_only import Cost, counted
from rival_client.errors import RivalError
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.problem_json import Refused, as_document, refused
from rival_workers.dashboard.requests import made_call
from rival_workers.dashboard.route import Answer, Call, Confirmed, Route
from rival_workers.dashboard.static_files import StaticFiles

API = "/api/v1"
#: Refusals that a dry run has as its answer.
_ANSWERS = (409, 413, 422, 429)
Endpoint = Callable[[Request], Awaitable[Response]]
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
        StarletteRoute("/static/{version}/{name:path}", _static(files), methods=["GET"]),
        *(StarletteRoute(API + one.path, _endpoint(board, one), methods=[one.method]) for one in table),
        StarletteRoute("/{page:path}", _shell(files, board), methods=["GET"]),
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _any_error}
    return Shield(Starlette(routes=routes, exception_handlers=handlers), board)


# -- endpoints --------------------------------------------------------------------------------------------


def _endpoint(board: Board, route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        with counted() as cost:
            try:
                call = await made_call(board, route, request)
                answer = await run_in_threadpool(_handled, route, call)
            except Exception as error:
                return problem_response(refused(error))
        return response(answer, route.status, cost)

    return endpoint


def _handled(route: Route, call: Call) -> Any:
    """Of a dry run, that the action is refused is an answer: a form asks while it is filled."""
    try:
        return route.handler(call)
    except RivalError as error:
        problem = refused(error)
        if not (isinstance(call.body, Confirmed) and call.body.dry_run and problem.status in _ANSWERS):
            raise
        return {"possible": False, "reason": problem.detail, "errors": problem.errors or []}


def response(answer: Any, status: int, cost: Cost) -> Response:
    """`cost` becomes a part of an object, for the page's footer."""
    full = answer if isinstance(answer, Answer) else Answer(answer, status)
    timing = {"server-timing": f'db;dur={cost.ms:.1f};desc="{cost.queries} queries"'}
    if full.content is None:
        return Response(status_code=full.status, headers={**timing, **full.headers})
    if isinstance(full.content, AsyncIterator):
        return StreamingResponse(full.content, full.status, {**timing, **full.headers}, full.media_type)
    if full.media_type is not None:
        return Response(full.content, full.status, {**timing, **full.headers}, full.media_type)
    content = full.content
    if isinstance(content, dict):
        content = {**content, "cost": {"queries": cost.queries, "ms": round(cost.ms, 1)}}
    return Response(as_json(content), full.status, {**timing, **full.headers}, "application/json")


def as_json(content: Any) -> bytes:
    # ASCII: a value of users may have lone surrogates, which UTF-8 does not have.
    return json.dumps(content, separators=(",", ":")).encode()


def problem_response(problem: Refused) -> Response:
    return Response(
        as_json(as_document(problem)), problem.status, problem.headers, media_type="application/problem+json"
    )


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


def _static(files: StaticFiles) -> Endpoint:
    async def static(request: Request) -> Response:
        found = files.file(request.path_params["version"], request.path_params["name"])
        if found is None:
            return problem_response(Refused(404, "NotFound", "This version does not have this file."))
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(found.content, headers=headers, media_type=found.media_type)
        return Response(found.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=found.media_type)

    return static


def _shell(files: StaticFiles, board: Board) -> Endpoint:
    async def shell(request: Request) -> Response:
        page = request.path_params["page"]
        if page == "api" or page.startswith(("api/", "static/")):
            return problem_response(Refused(404, "NotFound", "The API does not have this resource."))
        base = request.scope.get("root_path", "") + "/"
        content = files.shell(base, page, is_known=_is_known(board, request))
        return Response(content, media_type="text/html; charset=utf-8")

    return shell


def _is_known(board: Board, request: Request) -> bool:
    """A hint only: each request of the page is checked by itself, and says what is wrong with the login."""
    try:
        return board.sessions.identify(request.scope, request.headers, request.cookies) is not None
    except Exception:
        return False


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
    answer the headers that tie a browser down."""

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
        return len(hosts) == 1 and _name(hosts[0]).lower() in self._hosts


def _with_defaults(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = {name.lower().decode("latin-1") for name, _ in headers}
    return [*headers, *((name.encode(), text.encode()) for name, text in _HEADERS.items() if name not in given)]


def _name(host: str) -> str:
    """Without the port; an address of version 6 is in brackets."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


async def _unknown_host(scope: Scope, receive: Receive, send: Send) -> None:
    detail = "The dashboard does not answer to this host name: start it with --allow-host NAME."
    await problem_response(Refused(421, "UnknownHost", detail))(scope, receive, send)
