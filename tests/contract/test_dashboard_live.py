"""Live updates: what viewers get, that a cut stream goes on where it was, and what watching costs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import event, text

from rival_client.db.database import Database
from rival_client.errors import DatabaseUnavailable
from rival_workers import for_each, parallel, step, wait_event_step
from rival_workers.dashboard import live_polls
from rival_workers.dashboard.api import live
from rival_workers.dashboard.hub import Hub
from rival_workers.dashboard.live_polls import Polls
from rival_workers.dashboard.live_watch import Watch
from tests.support.dashboard import Site
from tests.support.inline import Inline


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    inline = Inline(url)
    inline.define("waits", step(lambda: 1, name="a"), wait_event_step("reply", name="b"), step(lambda: 2, name="c"))
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


class HandDriven(Hub):
    """Polls when a test says so."""

    def look(self, watch: Watch) -> int:
        self._thread = self._thread or object()  # type: ignore[assignment]
        return super().look(watch)

    def close(self) -> None:
        self._thread = None


@pytest.fixture
def hub(site: Site) -> HandDriven:
    made = HandDriven(Polls(site.board))
    site.board.__dict__["hub"] = made
    return made


def start(site: Site, run_id: str) -> None:
    site.inline.rival.run("waits", {}, run_id)
    site.inline.drain()


def answer(site: Site, run_id: str) -> None:
    site.inline.rival.send_event("reply", {}, run_id=run_id)
    site.inline.drain()


def changes(events: list[Any]) -> list[tuple[str | None, str, str | None]]:
    return [(row[2], row[3], row[4]) for one in events if one.kind == "steps" for row in one.data["changes"]]


def test_a_viewer_gets_each_change_of_its_run_once(site: Site, hub: HandDriven) -> None:
    start(site, "r1")
    start(site, "r2")
    watch = Watch(runs=frozenset(["r1"]))
    hub.look(watch)
    hub.poll_once()
    position = hub.position(hub.cursor) or 0
    assert hub.since(position, watch) == ([], position)
    answer(site, "r1")
    answer(site, "r2")
    hub.poll_once()
    hub.poll_once()
    events, _ = hub.since(position, watch)
    assert {one.about for one in events} == {"r1"}
    found = changes(events)
    assert ("b", "completed", "completed") in found
    assert ("c", "completed", "completed") in found
    assert (None, "completed", None) in found
    assert len(found) == len(set(found))
    rows = [one.data["run"] for one in events if one.kind == "run"]
    assert rows[-1]["status"] == "completed"


def test_a_stream_that_was_cut_goes_on_without_a_gap_and_without_a_repetition(site: Site, hub: HandDriven) -> None:
    start(site, "r1")
    watch = Watch(runs=frozenset(["r1"]))
    hub.look(watch)
    hub.poll_once()
    whole = hub.position(hub.cursor) or 0
    answer(site, "r1")
    hub.poll_once()
    first, position = hub.since(whole, watch)
    cursor = hub.cursor_at(position)
    site.inline.rival.rewind("r1", "c")
    hub.poll_once()
    site.inline.drain()
    hub.poll_once()
    again = hub.position(cursor)
    assert again is not None
    second, _ = hub.since(again, watch)
    everything, _ = hub.since(whole, watch)
    assert [one.number for one in first + second] == [one.number for one in everything]
    assert ("c", "rewind_run", "deleted") in changes(second)


def test_a_stream_that_is_cut_at_once_again_has_missed_nothing(site: Site, hub: HandDriven) -> None:
    """A browser keeps the id of the last frame: that of the greeting must not be ahead of what follows it."""
    start(site, "r1")
    watch = Watch(runs=frozenset(["r1"]))
    hub.look(watch)
    hub.poll_once()
    cursor = hub.cursor
    answer(site, "r1")
    hub.poll_once()
    assert hub.cursor != cursor

    headers = {"last-event-id": cursor}
    with site.browser.stream("GET", "/api/v1/stream", params={"run": "r1"}, headers=headers) as found:
        lines = found.iter_lines()
        first = [next(lines), next(lines)]
        hub.is_closed = True
        assert "event: bye" in list(lines)
    assert first == [f"id: {cursor}", "event: hello"]


def test_a_cursor_of_another_process_or_of_long_ago_is_not_known(site: Site, hub: HandDriven) -> None:
    for cursor in (None, "", "x", "12345678-0", f"{hub.cursor}7", "-1", hub.cursor.replace("-", "-x")):
        assert hub.position(cursor) is None
    for _ in range(2100):
        hub._add("cost", "", {})
    assert hub.position(hub.cursor_at(5)) is None
    assert hub.position(hub.cursor_at(2000)) == 2000


def test_an_entry_that_becomes_visible_late_is_not_missed(request: pytest.FixtureRequest) -> None:
    """Its id is lower than that of entries that viewers have got already."""
    inline = Inline(request.getfixturevalue("postgres_url"))
    inline.define("waits", wait_event_step("reply", name="b"))
    site = Site(inline)
    hub = HandDriven(Polls(site.board))
    try:
        inline.rival.run("waits", {}, "r1")
        inline.drain()
        watch = Watch(runs=frozenset(["r1"]))
        hub.look(watch)
        hub.poll_once()
        position = hub.position(hub.cursor) or 0
        insert = text(
            "INSERT INTO rival_history (run_id, path, what, detail, at) VALUES ('r1', :path, 'event', '{}', now())"
        )
        slow = Database(inline.settings.require_database())
        with slow.transaction() as held:
            held.execute(insert, {"path": "late"})
            with inline.store.database.transaction() as quick:
                quick.execute(insert, {"path": "early"})
            hub.poll_once()
        slow.dispose()
        hub._polls._due.clear()
        hub.poll_once()
        events, _ = hub.since(position, watch)
        assert [path for path, what, _ in changes(events) if what == "event"] == ["early", "late"]
    finally:
        site.close()
        inline.process.executor.stop()
        inline.process.close()


def test_viewers_hear_of_an_outage_of_the_database_and_of_its_end(
    site: Site, hub: HandDriven, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start(site, "r")
    watch = Watch(runs=frozenset({"r"}))
    hub.look(watch)
    hub.try_once()
    begin, position = hub.since(0, watch)
    assert "outage" not in [one.kind for one in begin]
    reading = site.board.database.snapshot
    monkeypatch.setattr(site.board.database, "snapshot", Down)
    for _ in range(3):
        hub.try_once()
    [down], position = hub.since(position, watch)
    assert (down.kind, down.data) == ("outage", {"since": hub.outage})
    assert len([one for one in caplog.records if "does not answer" in one.message]) == 1
    monkeypatch.setattr(site.board.database, "snapshot", reading)
    answer(site, "r")
    hub.try_once()
    found, _ = hub.since(position, watch)
    assert found[-1].kind == "outage"
    assert found[-1].data == {"since": None}
    assert ("c", "completed") in [(path, status) for path, _, status in changes(found)]


class Down:
    """A database that cannot be reached."""

    def __enter__(self) -> None:
        raise DatabaseUnavailable("The database does not answer.")

    def __exit__(self, *_: object) -> None: ...


def test_very_many_changes_are_one_request_to_read_the_run_again(site: Site, hub: HandDriven) -> None:
    site.inline.define("many", for_each("lines", items=lambda: list(range(250)), do=[step(lambda item: 1, name="x")]))
    site.inline.rival.run("many", {}, "m")
    watch = Watch(runs=frozenset(["m"]))
    hub.look(watch)
    hub.poll_once()
    position = hub.position(hub.cursor) or 0
    site.inline.drain()
    hub.poll_once()
    events, _ = hub.since(position, watch)
    assert [one.data["run"] for one in events if one.kind == "reset"] == ["m"]
    assert changes(events) == []


def test_logs_are_followed_and_lists_say_what_is_newest(site: Site, hub: HandDriven) -> None:
    site.inline.define("talks", wait_event_step("go", name="w"), step(lambda log: log.info("hello"), name="says"))
    site.inline.rival.run("talks", {}, "t1")
    site.inline.drain()
    watch = Watch(logs=frozenset(["t1"]), lists=frozenset(["workflow=talks"]))
    hub.look(watch)
    hub.poll_once()
    position = hub.position(hub.cursor) or 0
    site.inline.rival.send_event("go", {})
    site.inline.drain()
    site.inline.rival.run("talks", {}, "t2")
    hub._polls._due.clear()
    hub.poll_once()
    events, _ = hub.since(position, watch)
    assert [one.data["items"][0]["message"] for one in events if one.kind == "logs"] == ["hello"]
    assert [one.data["newest"] for one in events if one.kind == "list"] == [["t2", "t1"]]
    site.inline.drain()


def test_two_hundred_viewers_cause_as_many_statements_as_one(site: Site, hub: HandDriven) -> None:
    start(site, "r1")
    statements: list[str] = []
    event.listen(site.board.database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    watch = Watch(runs=frozenset(["r1"]), rows=frozenset(["r1"]), logs=frozenset(["r1"]), lists=frozenset([""]))
    costs = []
    for viewers in (1, 200):
        hub._polls._due.clear()
        for _ in range(viewers):
            hub.look(watch)
        before = len(statements)
        hub.poll_once()
        for _ in range(viewers):
            hub.since(0, watch)
        costs.append(len(statements) - before)
        # The first round of a run reads its last log line, too.
        if viewers == 1:
            hub._polls._due.clear()
            before = len(statements)
            hub.poll_once()
            costs = [len(statements) - before]
    assert costs[0] == costs[1]
    assert costs[0] < 12


def test_of_very_many_rows_each_is_looked_at_in_turn(
    site: Site, hub: HandDriven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_polls, "_ROWS", 2)
    runs = [f"r{number}" for number in range(5)]
    for run_id in runs:
        start(site, run_id)
    watch = Watch(rows=frozenset(runs))
    hub.look(watch)
    for _ in range(3):
        hub.poll_once()
    position = hub.position(hub.cursor) or 0
    for run_id in runs:
        answer(site, run_id)
    for _ in range(3):
        hub.poll_once()
    events, _ = hub.since(position, watch)
    assert sorted(one.about for one in events if one.kind == "run") == runs


def test_a_run_with_much_progress_does_not_hide_that_of_others(
    site: Site, hub: HandDriven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_polls, "_PROGRESS", 1)
    each = [for_each(name, items=lambda: [1, 2], do=[wait_event_step("go", name="w")]) for name in ("a", "b")]
    site.inline.define("counts", parallel("both", each))
    for run_id in ("r1", "r2"):
        site.inline.rival.run("counts", {}, run_id)
    site.inline.drain()
    watch = Watch(runs=frozenset(["r1", "r2"]))
    hub.look(watch)
    hub.poll_once()
    events, _ = hub.since(0, watch)
    shown = {one.about: list(one.data["steps"]) for one in events if one.kind == "progress"}
    assert shown == {"r1": ["both"], "r2": ["both"]}
    for run_id in ("r1", "r2"):
        site.inline.rival.cancel(run_id)


def frames(site: Site, watch: Watch) -> AsyncIterator[str]:
    return live._frames(site.board.hub, watch, [], 0, lambda: True)


def test_streams_that_were_admitted_together_do_not_exceed_their_number(
    site: Site, hub: HandDriven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    hub.viewers = 1

    async def all_frames() -> list[str]:
        return [frame async for frame in frames(site, Watch())]

    [only] = asyncio.run(all_frames())
    assert "event: bye" in only
    assert hub.viewers == 1


def test_a_viewer_gets_at_most_so_much_per_second(site: Site, hub: HandDriven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_PER_SECOND", 10_000)
    watch = Watch(counts=True)

    async def seconds_between() -> float:
        found = frames(site, watch)
        assert "event: hello" in await anext(found)
        hub._add("counts", "", {"text": "x" * 6_000})
        assert len(await anext(found)) > 6_000
        hub._add("counts", "", {"text": "y"})
        began = time.monotonic()
        await anext(found)
        await found.aclose()  # type: ignore[attr-defined]
        return time.monotonic() - began

    assert asyncio.run(seconds_between()) >= 0.6


# -- over HTTP --------------------------------------------------------------------------------------------


def test_updates_by_polling_begin_with_a_cursor(site: Site) -> None:
    start(site, "r1")
    first = site.get("updates", run="r1")
    assert [one["event"] for one in first["events"]] == ["hello"]
    answer(site, "r1")
    found: list[Any] = []
    cursor = first["cursor"]
    for _ in range(100):
        page = site.get("updates", run="r1", after=cursor)
        cursor = page["cursor"]
        found += page["events"]
        if any(one["event"] == "run" and one["data"]["run"]["status"] == "completed" for one in found):
            break
        site.board.hub._wake.set()
        site.board.hub._wake.wait(0.05)
    else:
        pytest.fail("the end of the run was not reported")
    assert site.get("updates", run="r1", after="00000000-7")["events"][0]["event"] == "reset"


@pytest.mark.parametrize("path", ["updates", "stream"])
def test_updates_that_are_late_say_why(site: Site, hub: HandDriven, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known then from when on changes would be reported: the page asks again."""
    monkeypatch.setattr(live, "_PATIENCE", 0.05)
    start(site, "r1")
    for outage, code in ((None, "ServerBusy"), ("2026-01-01T00:00:00Z", "DatabaseUnavailable")):
        hub.outage = outage
        late = site.ask("GET", path, params={"run": "r1"})
        assert (late.status_code, late.json()["code"], late.headers["retry-after"]) == (503, code, "2")
    hub.outage = None
    for _ in range(2):
        hub.poll_once()
    assert site.ask("GET", "updates", params={"run": "r1"}).status_code == 200


def test_a_viewer_that_comes_second_waits_for_the_first_round_too(site: Site, hub: HandDriven) -> None:
    """What changes before that round is read with the run itself, so the run must be read after it."""
    start(site, "r1")
    watch = Watch(runs=frozenset({"r1"}))
    assert [hub.look(watch), hub.look(watch)] == [2, 2]
    hub.poll_once()
    assert hub.look(watch) == 2
    hub.poll_once()
    assert hub.look(watch) <= hub.rounds


def test_a_stream_speaks_server_sent_events(site: Site) -> None:
    start(site, "r1")
    with site.browser.stream("GET", "/api/v1/stream", params={"run": "r1"}) as found:
        assert found.headers["content-type"].startswith("text/event-stream")
        assert found.headers["x-accel-buffering"] == "no"
        lines = found.iter_lines()
        assert next(lines).startswith("id: ")
        assert next(lines) == "event: hello"
        assert json.loads(next(lines).removeprefix("data: "))["cursor"]
        site.board.hub.is_closed = True
        assert "event: bye" in list(lines)
