"""Routes of live updates: a stream of server-sent events, and the same by polling."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl

from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from rival_client.errors import RivalError
from rival_workers.dashboard.api.filters import RunQuery
from rival_workers.dashboard.hub import BUSY, Hub
from rival_workers.dashboard.ids import from_path
from rival_workers.dashboard.live_watch import Event, Watch
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Form, Route

MAX_STREAMS = 200
#: Names that one stream may look at, of each kind.
_MOST = 200
#: Seconds between two comments, which keep proxies from closing a quiet stream.
COMMENT_EVERY = 15.0
#: Characters per second that one viewer gets: one that falls behind reads the run again.
MOST_PER_SECOND = 65_536
#: Seconds that a first poll may take: afterwards it is not known from when on changes would be reported.
_PATIENCE = 5.0
_SOON = {"retry-after": "2"}


class LiveQuery(Form):
    run: list[str] = Field(default_factory=list, max_length=50)
    logs: list[str] = Field(default_factory=list, max_length=50)
    #: Ids with commas between them, each part as in a path.
    rows: list[str] = Field(default_factory=list, max_length=_MOST)
    lists: list[str] = Field(default_factory=list, alias="list", max_length=20)
    bulk: list[str] = Field(default_factory=list, max_length=20)
    counts: bool = False
    fleet: bool = False
    after: str | None = None

    def watch(self, call: Call) -> Watch:
        rows = frozenset(from_path(one) or one for several in self.rows for one in several.split(",") if one)
        if len(rows) > _MOST:
            raise Refused(422, "InvalidArgument", f"A stream can follow {_MOST} rows at most.")
        followed = [one for one in self.lists if _may_follow(one, call)]
        kinds = (self.run, self.logs, followed, self.bulk)
        runs, logs, lists, bulks = (frozenset(names) for names in kinds)
        return Watch(runs, rows, logs, lists, bulks, self.counts, self.fleet)


def _may_follow(text: str, call: Call) -> bool:
    """Not a list of runs that are found by a value that is hidden. One that cannot be read is never anything new."""
    try:
        RunQuery.model_validate(dict(parse_qsl(text))).refuse_hidden(call.board, call.who)
    except (ValidationError, RivalError, Refused):
        return False
    return True


def updates(call: Call) -> dict[str, Any]:
    """Returns the events since the cursor; without a cursor, only the position to begin at."""
    hub, watch = call.board.hub, call.query.watch(call)
    ready = hub.look(watch)
    if call.query.after is None:
        _wait_for(hub, ready)
        cursor = hub.cursor
        return {"events": [_hello(hub, cursor)], "cursor": cursor}
    position = hub.position(call.query.after)
    if position is None:
        _wait_for(hub, ready)
        return {"events": [_reset()], "cursor": hub.cursor}
    events, last = hub.since(position, watch)
    found = [{"event": one.kind, "id": hub.cursor_at(one.number), "data": one.data} for one in events]
    return {"events": found, "cursor": hub.cursor_at(last)}


def _wait_for(hub: Hub, rounds: int) -> None:
    until = time.monotonic() + _PATIENCE
    while hub.rounds < rounds and not hub.is_closed:
        if time.monotonic() > until:
            raise _late(hub)
        time.sleep(0.02)


def _late(hub: Hub) -> Refused:
    if hub.outage is not None:
        return Refused(503, "DatabaseUnavailable", "The database does not answer.", headers=_SOON)
    detail = f"The server is busy: it has not read what was asked about within {_PATIENCE:g} s. Ask again."
    return Refused(503, "ServerBusy", detail, headers=_SOON)


def _hello(hub: Hub, cursor: str) -> dict[str, Any]:
    """`cursor`: where the viewer is. Events that follow may be older than the newest."""
    about = {"cursor": cursor, "interval": BUSY, "viewers": hub.viewers, "outage": hub.outage}
    return {"event": "hello", "id": cursor, "data": about}


def _reset() -> dict[str, Any]:
    return {"event": "reset", "id": None, "data": {"run": None, "why": "too much time has passed"}}


# -- the stream -------------------------------------------------------------------------------------------


def stream(call: Call) -> Answer:
    hub, watch = call.board.hub, call.query.watch(call)
    if hub.viewers >= MAX_STREAMS:
        detail = f"There are {MAX_STREAMS} viewers already: ask for updates instead."
        raise Refused(503, "TooManyStreams", detail, headers={"retry-after": "30"})
    cursor = call.headers.get("last-event-id") or call.query.after
    position = hub.position(cursor)
    _wait_for(hub, hub.look(watch))
    first = [] if cursor is None or position is not None else [_reset()]
    content = _frames(hub, watch, first, hub.last if position is None else position, call.is_still_allowed)
    return Answer(content, headers={"x-accel-buffering": "no"}, media_type="text/event-stream")


async def _frames(
    hub: Hub, watch: Watch, first: list[dict[str, Any]], position: int, is_allowed: Callable[[], bool]
) -> AsyncIterator[str]:
    if hub.viewers >= MAX_STREAMS:
        # Others were admitted at the same time.
        yield _frame("bye", hub.cursor, {"why": f"there are {MAX_STREAMS} viewers already"})
        return
    hub.viewers += 1
    try:
        for one in (*first, _hello(hub, hub.cursor_at(position))):
            yield _frame(one["event"], one["id"], one["data"])
        quiet_until = time.monotonic() + COMMENT_EVERY
        sent = ""
        while not hub.is_closed:
            await asyncio.sleep(max(BUSY, len(sent) / MOST_PER_SECOND))
            sent = ""
            hub.look(watch)
            if hub.position(hub.cursor_at(position)) is None:
                yield _frame("reset", hub.cursor, {"run": None, "why": "too much has changed"})
            events, position = hub.since(position, watch)
            if events:
                sent = "".join(_event(hub, one) for one in events)
                yield sent
            if time.monotonic() > quiet_until:
                if not await run_in_threadpool(is_allowed):
                    break
                yield ":\n\n"
                quiet_until = time.monotonic() + COMMENT_EVERY
        yield _frame("bye", hub.cursor, {"why": "the server stops, or the session has ended"})
    finally:
        hub.viewers -= 1


def _event(hub: Hub, event: Event) -> str:
    return _frame(event.kind, hub.cursor_at(event.number), event.data)


def _frame(kind: str, cursor: str | None, data: dict[str, Any]) -> str:
    mark = f"id: {cursor}\n" if cursor else ""
    return f"{mark}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


ROUTES = (
    Route(
        "GET",
        "/stream",
        "viewer",
        stream,
        "Follow changes as server-sent events",
        query=LiveQuery,
        answers=None,
        does="wait",
    ),
    Route("GET", "/updates", "viewer", updates, "Ask for changes since a cursor", query=LiveQuery),
)
