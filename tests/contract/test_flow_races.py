"""Postgres: what ends a checkpoint meets the commit that suspends the flow. No wake-up is lost, whichever is
first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rival_workers.store.sql.flow_rows import FlowTransaction
from tests.support.flows import define, finish
from tests.support.inline import Inline
from tests.support.locks import until_blocked


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
    while not met:
        postgres.drain()
    met[0].join(10)
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
    for _ in range(200):
        postgres.drain()
        if waiting:
            break
    else:
        pytest.fail("the flow does not wait")
    for thread in met:
        thread.join(10)
    resume(postgres)
