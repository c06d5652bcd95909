"""What steps log: appended in order on each store, read the same way by both clients, also while a step still runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_client import AsyncRival, LogEntry, Rival, RivalError, RunNotFound
from rival_client.settings import Settings
from rival_client.sql.reads.logs import read_logs
from rival_workers import StepError, StepLog, branch, for_each, step
from rival_workers.store.sql_store import append_to_log
from tests.contract.stage import Stage
from tests.contract.test_races import Crossing
from tests.support.inline import Clock, Inline
from tests.support.output import whole
from tests.support.workers import wait_until

AT = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


def entry(message: str, number: int = 0, path: str = "a") -> LogEntry:
    return LogEntry(AT + dt.timedelta(microseconds=number), "info", path, 1, message, {})


# -- the store's side -------------------------------------------------------------------------------------


def messages(stage: Stage, run_id: str = "r") -> list[str]:
    with stage.database.autocommit() as connection:
        return [found.message for found in read_logs(connection, run_id)]


def test_entries_whose_commit_got_no_reply_are_not_stored_twice(stage: Stage) -> None:
    stage.begin()
    entries = [entry(f"{n}", n) for n in range(4)]
    stage.store.append_logs("r", entries[:2])
    stage.store.append_logs("r", entries[:3], again=True)
    stage.store.append_logs("r", entries[3:], again=True)
    stage.store.append_logs("r", entries, again=True)
    assert messages(stage) == ["0", "1", "2", "3"]


def test_entries_of_a_run_that_is_gone_are_not_left_behind(stage: Stage) -> None:
    stage.store.append_logs("deleted", [entry("late")])
    assert stage.count("rival_logs") == 0


@pytest.fixture
def crossing(pg_stage: Stage) -> Iterator[Crossing]:
    made = Crossing(pg_stage.database.url)
    yield made
    made.close()


def test_who_follows_a_log_misses_nothing_of_a_writer_that_commits_late(pg_stage: Stage, crossing: Crossing) -> None:
    """Two steps of a run write at once: what has the lower id is seen first, so `after` never skips anything."""
    pg_stage.begin()
    pg_stage.begin("other")
    with pg_stage.database.transaction() as connection:
        append_to_log(connection, "r", [entry("first")])
        second = crossing.arrive(lambda: pg_stage.store.append_logs("r", [entry("second", path="b")]))
        assert not second.done()
        pg_stage.store.append_logs("other", [entry("another run does not wait")])
    second.result(timeout=10)
    assert messages(pg_stage) == ["first", "second"]


# -- reading ----------------------------------------------------------------------------------------------


class Reader:
    """`logs` of either client."""

    def __init__(self, rival: Rival, runner: asyncio.Runner | None) -> None:
        self._rival, self._runner = rival, runner

    def __call__(self, *args: Any, **kwargs: Any) -> list[LogEntry]:
        if self._runner is None:
            return self._rival.logs(*args, **kwargs)
        return self._runner.run(AsyncRival(sync=self._rival).logs(*args, **kwargs))

    def messages(self, *args: Any, **kwargs: Any) -> list[str]:
        return [found.message for found in self(*args, **kwargs)]


@pytest.fixture(params=["postgres", "sqlite"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = str(request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url"))
    made = Inline(url, redact="iban")
    yield made
    made.close()


@pytest.fixture(params=["sync", "async"])
def logs(request: pytest.FixtureRequest, inline: Inline) -> Iterator[Reader]:
    rival = Rival(settings=Settings(database_url=inline.settings.database_url), doorbell=inline.doorbell)
    if request.param == "sync":
        yield Reader(rival, None)
    else:
        with asyncio.Runner() as runner:
            yield Reader(rival, runner)
    rival.close()


def carry_out(inline: Inline, *steps: Any, **options: Any) -> str:
    inline.define("w", *steps, **options)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    return run_id


def test_every_kind_of_step_logs_and_every_attempt_is_kept(inline: Inline, logs: Reader) -> None:
    def flaky(log: StepLog, run: Any) -> None:
        log.info("trying", attempt=run.attempt)
        if run.attempt < 3:
            raise StepError("not yet", behavior="retry")

    def yes(log: StepLog) -> bool:
        log.info("asked")
        return True

    def two(log: StepLog) -> list[int]:
        log.info("listed")
        return [1, 2]

    def each(log: StepLog, item: int) -> None:
        log.info("item", item=item)

    async def boom(log: StepLog) -> None:
        log.error("breaking")
        raise ValueError("boom")

    def handle(log: StepLog) -> None:
        log.warning("handled")

    run_id = carry_out(
        inline,
        step(flaky, max_attempts=3, base_delay=0),
        branch("maybe", when=yes, then=[for_each("lines", items=two, do=[each])]),
        step(boom, on_error=handle),
        on_error=handle,
    )
    found = logs(run_id)
    assert [(e.path, e.attempt, e.message.partition(":")[0]) for e in found] == [
        ("flaky", 1, "trying"),
        ("flaky", 1, "attempt 1 of 3 failed, next attempt in 0 s"),
        ("flaky", 2, "trying"),
        ("flaky", 2, "attempt 2 of 3 failed, next attempt in 0 s"),
        ("flaky", 3, "trying"),
        ("maybe!when", 1, "asked"),
        ("maybe/lines!items", 1, "listed"),
        ("maybe/lines[0]/each", 1, "item"),
        ("maybe/lines[1]/each", 1, "item"),
        ("boom", 1, "breaking"),
        ("boom", 1, "attempt 1 of 1 failed, no retry"),
        ("boom!on_error", 1, "handled"),
        ("!on_error", 1, "handled"),
    ]
    assert [e.fields for e in found if e.message == "trying"] == [{"attempt": n} for n in (1, 2, 3)]


def write_some(log: StepLog) -> None:
    for number in range(7):
        log.debug("count", n=number)
    log.info("half")
    log.warning("careful", customer={"iban": "DE1"})
    log.error("broken")


def more(log: StepLog) -> None:
    log.info("more")


def test_a_log_is_read_by_level_and_step(inline: Inline, logs: Reader) -> None:
    run_id = carry_out(
        inline,
        step(write_some, name="a"),
        step(more, name="ab"),
        branch("b", when=lambda: True, then=[step(more, name="c")]),
    )
    assert logs.messages(run_id, level="warning") == ["careful", "broken"]
    assert logs.messages(run_id, level="error") == ["broken"]
    assert len(logs(run_id, level="debug")) == 12
    assert {e.path for e in logs(run_id, step="a")} == {"a"}
    assert logs.messages(run_id, "b", "info") == ["more"]
    assert logs(run_id, step="nowhere") == []
    assert logs(run_id, level="warning")[0].fields == {"customer": {"iban": "***"}}
    with pytest.raises(
        RivalError, match=whole("Invalid argument level: 'loud' is not one of 'debug', 'info', 'warning', 'error'.")
    ):
        logs(run_id, level="loud")


def test_a_log_is_read_page_by_page_without_loss_or_repetition(inline: Inline, logs: Reader) -> None:
    run_id = carry_out(inline, step(write_some, name="a"), step(more, name="b"))
    seen: list[LogEntry] = []
    after = None
    while page := logs(run_id, after=after, limit=4):
        seen += page
        after = page[-1].id
    assert [len(seen), seen] == [11, logs(run_id)]
    assert logs.messages(run_id, after=seen[-2].id) == ["more"]


def test_a_run_without_entries_has_an_empty_log_and_no_run_has_none(inline: Inline, logs: Reader) -> None:
    run_id = carry_out(inline, step(lambda: 1, name="quiet"))
    assert logs(run_id) == []
    with pytest.raises(RunNotFound):
        logs("nobody")


def test_what_a_step_logs_can_be_read_while_it_runs(inline: Inline, logs: Reader) -> None:
    go_on = threading.Event()

    def long(log: StepLog) -> None:
        log.info("begun")
        assert go_on.wait(20)
        log.info("done")

    inline.define("w", step(long, name="long"))
    run_id = inline.rival.run("w").run_id
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(inline.drain)
        try:
            wait_until(lambda: logs.messages(run_id) == ["begun"], 10)
            assert inline.rival.state(run_id).steps[0].status == "running"
        finally:
            go_on.set()
        working.result(20)
    assert logs.messages(run_id) == ["begun", "done"]


@pytest.mark.parametrize("writes", [0, 1, 50])
def test_a_quick_step_costs_one_write_of_its_log_and_a_silent_one_none(file_url: str, writes: int) -> None:
    calls: list[int] = []
    inline = Inline(file_url, clock=Clock())
    append: Callable[..., None] = inline.store.append_logs
    inline.coordinator.logs._append = lambda *args: (calls.append(len(args[1])), append(*args))  # type: ignore[assignment, func-returns-value]

    def write(log: StepLog) -> None:
        for number in range(writes):
            log.info("one", n=number)

    carry_out(inline, write)
    assert calls == ([writes] if writes else [])
    inline.close()
