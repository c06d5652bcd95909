"""Handles a request: identifies and authorises the caller, parses the arguments, calls the handler, and makes the
answer of what it returns.

A write of a browser must be JSON and come from a page of the same origin. Bearer tokens are exempt, because a browser
never sends them by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, get_origin
from urllib.parse import quote

from anyio import move_on_after
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rival_client.db.read_only import Cost, counted
from rival_client.errors import RivalError
from rival_client.model.json_checks import MAX_DEPTH, refuse_deep
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.ids import from_path
from rival_workers.dashboard.problem_json import Refused, as_document, not_parsed, refused
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.route import Answer, Call, Confirmed, Form, Route
from rival_workers.dashboard.sessions import bearer_of

MAX_BODY = 2 * 2**20
#: Of a request that needs no login.
MAX_LOGIN = 2**14
#: Seconds within which a body must arrive, so that slow senders hold no memory for long.
PATIENCE = 30.0
#: A surrogate, as JSON escapes it.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: Levels of a body around a value of a user.
_LEVELS = 3
#: Refusals that a dry run has as its answer.
_ANSWERS = (409, 413, 422, 429)
Endpoint = Callable[[Request], Awaitable[Response]]


def endpoint(board: Board, route: Route) -> Endpoint:
    async def answered(request: Request) -> Response:
        with counted() as cost:
            try:
                call = await _made_call(board, route, request)
                answer = await run_in_threadpool(_handled, route, call)
            except Exception as error:
                return problem_response(refused(error))
        return _response(answer, route.status, cost)

    return answered


def _handled(route: Route, call: Call) -> Any:
    """Calls the handler. In a dry run a refusal is an answer, not an error: a form asks while it is filled."""
    try:
        return route.handler(call)
    except RivalError as error:
        problem = refused(error)
        if not (isinstance(call.body, Confirmed) and call.body.dry_run and problem.status in _ANSWERS):
            raise
        return {"possible": False, "reason": problem.detail, "errors": problem.errors or []}


def _response(answer: Any, status: int, cost: Cost) -> Response:
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
    return Response(_as_json(content), full.status, {**timing, **full.headers}, "application/json")


def _as_json(content: Any) -> bytes:
    # ASCII: a value of users may have lone surrogates, which UTF-8 does not have.
    return json.dumps(content, separators=(",", ":")).encode()


def problem_response(problem: Refused) -> Response:
    return Response(
        _as_json(as_document(problem)), problem.status, problem.headers, media_type="application/problem+json"
    )


# -- what is asked for ------------------------------------------------------------------------------------


async def _made_call(board: Board, route: Route, request: Request) -> Call:
    def identify() -> Identity | None:
        return board.sessions.identify(request.scope, request.headers, request.cookies)

    # In a thread: `authorize` of another application may ask its database.
    who = await run_in_threadpool(identify)
    if who is None and board.sessions.takes_bearers and bearer_of(request.headers) is not None:
        raise Refused(401, "LoginNeeded", "This bearer token is not valid, or has expired.")
    _check_origin(route, request, who)
    _check_role(board, route, who)

    def is_still_allowed() -> bool:
        now = identify()
        return route.role == "none" or (now is not None and now.may(route.role))

    return Call(
        board=board,
        who=who,
        names=_names(request.path_params),
        query=_query(route, request),
        body=await _body(route, request),
        headers={**request.headers, "x-rival-peer": _address(request)},
        base=f"{request.url.scheme}://{request.headers.get('host', '')}{mount_of(request)}",
        is_still_allowed=is_still_allowed,
    )


def mount_of(request: Request) -> str:
    """The path at which the dashboard is, with a slash at its end. An application that mounts it at a path with a
    parameter takes a part of it from the request."""
    return quote(request.scope.get("root_path", ""), safe="/") + "/"


def _address(request: Request) -> str:
    """The address of the browser: the peer's, or the one that a trusted proxy names."""
    said: str = request.scope.get("rival.client", "")
    return said or (request.client.host if request.client else "")


def _check_origin(route: Route, request: Request, who: Identity | None) -> None:
    if who is not None and who.is_script:
        return
    sites = request.headers.getlist("sec-fetch-site")
    if not sites:
        same = request.headers.getlist("origin") == [f"{request.url.scheme}://{request.headers.get('host')}"]
        is_fine = same or (not route.writes and "origin" not in request.headers)
    else:
        is_fine = sites == ["same-origin"] or (sites == ["none"] and not route.writes)
    if not is_fine:
        raise Refused(
            403, "CrossSite", "Only pages of the dashboard may send this request; scripts use a bearer token."
        )


def _check_role(board: Board, route: Route, who: Identity | None) -> None:
    if route.role != "none":
        if who is None:
            raise Refused(401, "LoginNeeded", "Log in first: open the link that `rival dashboard` prints.")
        if not who.may(route.role):
            raise Refused(403, "Forbidden", f"This needs the role {route.role}; {who.name} has {who.role}.")
    if board.options.read_only and route.writes and not route.is_read:
        raise Refused(403, "ReadOnly", "This dashboard is read-only.")


def _names(params: Mapping[str, Any]) -> dict[str, str]:
    found = {name: from_path(str(part)) for name, part in params.items()}
    names = {name: value for name, value in found.items() if value is not None}
    if len(names) != len(found):
        raise Refused(404, "NotFound", "The path has a name that is not written as ~XX.")
    return names


def _query(route: Route, request: Request) -> Form:
    given: dict[str, Any] = {}
    fields = {field.alias or name: field for name, field in route.query.model_fields.items()}
    for name in request.query_params:
        several = request.query_params.getlist(name)
        field = fields.get(name)
        is_list = field is not None and get_origin(field.annotation) in (list, tuple)
        given[name] = several if is_list else several[-1]
    try:
        return route.query.model_validate(given)
    except ValidationError as error:
        raise not_parsed(error, "?") from None


async def _body(route: Route, request: Request) -> Form | None:
    if not route.writes:
        return None
    if route.body is None and request.headers.get("content-length", "0") == "0":
        return None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused(415, "NotJson", "Send JSON: Content-Type: application/json.")
    most = MAX_LOGIN if route.role == "none" else MAX_BODY
    with move_on_after(PATIENCE):
        return _parsed(route.body or Form, await _read(request, most))
    raise Refused(408, "TooSlow", f"The body did not arrive within {PATIENCE:g} s.", headers={"connection": "close"})


async def _read(request: Request, most: int) -> bytes:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            raise Refused(413, "InvalidPayload", f"The body is too large: at most {most:,} bytes.")
    return bytes(content)


def _parsed(model: type[Form], content: bytes) -> Form:
    try:
        text = content.decode() or "{}"
        refuse_deep(text, "The body", MAX_DEPTH + _LEVELS)
        found = json.loads(text)
        if _SURROGATE.search(text) is not None:
            json.dumps(found, ensure_ascii=False).encode()  # ValueError for a lone surrogate
        return model.model_validate(found)
    except ValidationError as error:
        raise not_parsed(error) from None
    except (ValueError, RecursionError) as error:
        found = [{"pointer": "", "message": str(error)}]
        raise Refused(400, "BadRequest", "The body is not JSON.", errors=found) from None
