"""Postgres: what ends a checkpoint meets the commit that suspends the flow. No wake-up is lost, whichever is
first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text

from rival_workers.store.sql.flow_rows import FlowTransaction
from tests.support.flows import define, finish
from tests.support.inline import Inline
from tests.support.locks import until_blocked
from tests.support.threads import join_all
from tests.support.workers import wait_until


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Inline]:
    opened = Inline(postgres_url)
    yield opened
    opened.close()


def meet_in_a_commit(
    inline: Inline, monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool], other: Callable[[], Any]
) -> list[threading.Thread]:
    """The other transaction begins while a commit of the flow has its locks, and waits for them."""
    met: list[threading.Thread] = []
    real = FlowTransaction.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, *args: Any) -> Any:
        if not met and when():
            met.append(threading.Thread(target=other))
            met[0].start()
            until_blocked(inline.store.database)
        return real(cls, *args)

    monkeypatch.setattr(FlowTransaction, "of", classmethod(of))
    return met


def drain_until(inline: Inline, come: list[Any]) -> None:
    """Deliver what is due until there is something in the list."""

    def delivered() -> bool:
        inline.drain()
        return bool(come)

    wait_until(delivered)


def resume(inline: Inline, run_id: str = "r") -> None:
    """No message is published for what a test has ended by hand."""
    inline.rival.recover()
    inline.keeper.run_once()
    assert finish(inline, run_id) == "done"


def test_an_event_that_is_delivered_while_the_flow_is_being_suspended_resumes_it(
    postgres: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    committing: list[bool] = []

    def body(ctx: Any) -> Any:
        handle = ctx.start.await_event("go")
        ctx.first(handle, (ctx.sleep, 0.01))
        committing.append(True)
        return handle.result()

    event_id: list[str] = []

    def deliver() -> None:
        postgres.store.deliver_event(event_id[0])

    define(postgres, body)
    met = meet_in_a_commit(postgres, monkeypatch, lambda: bool(committing), deliver)
    postgres.rival.run("f", run_id="r")
    sent = postgres.rival.send_event
    real = postgres.store.commit_flow

    def commit(claim: Any, commit: Any) -> Any:
        """The event is sent after the wait has begun, so that the wait does not find it."""
        if committing and not event_id:
            event_id.append(sent("go", "done").event_id)
        return real(claim, commit)

    postgres.store.commit_flow = commit  # type: ignore[method-assign]
    drain_until(postgres, met)
    join_all(met[:1])
    resume(postgres)


@pytest.mark.parametrize("how", ["cancelled", "ended before"])
def test_a_child_that_ends_while_its_parent_begins_to_wait_for_it_resumes_it(
    postgres: Inline, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    waiting: list[bool] = []

    def body(ctx: Any) -> Any:
        handle = ctx.spawn("child")
        ctx.sleep(0.01)
        if how == "ended before":
            ctx.step(postgres.rival.cancel, handle.run_id)
        waiting.append(True)
        try:
            return handle.result()
        except Exception:
            return "done"

    define(postgres, lambda ctx: ctx.await_event("never"), name="child")
    define(postgres, body)
    met: list[threading.Thread] = []
    if how == "cancelled":
        met = meet_in_a_commit(
            postgres, monkeypatch, lambda: bool(waiting), lambda: postgres.rival.cancel("r/spawn:child")
        )
    postgres.rival.run("f", run_id="r")
    drain_until(postgres, waiting)
    assert bool(met) == (how == "cancelled")
    join_all(met)
    resume(postgres)


def seconds_left(inline: Inline) -> float:
    left = "SELECT extract(epoch FROM due_at - clock_timestamp()) FROM rival_steps WHERE run_id = 'r' AND path = 'f'"
    with inline.store.database.autocommit() as connection:
        return float(connection.scalar(text(left)) or 0.0)


def test_the_countdown_of_a_sleep_does_not_include_the_time_of_its_commit(postgres: Inline) -> None:
    """A commit takes long when it waits for another one's lock. The sleep is never early, either."""

    def unlock_later(operator: Connection) -> None:
        until_blocked(postgres.store.database)
        threading.Event().wait(0.25)
        operator.close()

    def sleep_while_the_run_is_locked(ctx: Any) -> None:
        operator = postgres.store.database.engine.connect()
        operator.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('r', 726356))"))
        threading.Thread(target=unlock_later, args=(operator,)).start()
        ctx.sleep(20)

    define(postgres, sleep_while_the_run_is_locked)
    postgres.rival.run("f", run_id="r")
    postgres.drain()
    [(_, message)] = postgres.later
    assert seconds_left(postgres) <= message.countdown <= 19.8


def test_the_countdown_of_a_sleep_does_not_include_the_time_until_the_answer_to_its_commit(postgres: Inline) -> None:
    """The database has written its time into the answer before it commits, and an earlier answer was quicker."""
    define(postgres, lambda ctx: ctx.sleep(20))
    postgres.rival.run("f", run_id="quick")
    postgres.drain()
    postgres.later.clear()
    with postgres.store.database.transaction() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'"
            )
        )
        connection.execute(
            text(
                "CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON rival_steps DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW WHEN (NEW.kind = 'sleep') EXECUTE FUNCTION slow_commit()"
            )
        )
    postgres.rival.run("f", run_id="r")
    postgres.drain()
    [(_, message)] = postgres.later
    assert seconds_left(postgres) <= message.countdown <= 19.7
