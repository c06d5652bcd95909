"""`if_entry`: a verb that changes a run only as the operator has seen it. The comparison is part of its transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rival_client import AsyncRival, Rival, RunHasMoved
from rival_client.db.locks import lock_run
from rival_client.errors import InvalidArgument
from rival_client.sql.history import record
from rival_workers import StepError, step, wait_event_step
from tests.support.inline import Inline
from tests.support.output import whole
from tests.support.threads import join_all
from tests.support.workers import wait_until

Verb = Callable[[Rival, int], Any]
#: Verb -> the run that it fits, and how it is called.
VERBS: dict[str, tuple[str, Verb]] = {
    "cancel": ("waits", lambda rival, seen: rival.cancel("waits", if_entry=seen)),
    "pause": ("waits", lambda rival, seen: rival.pause("waits", if_entry=seen)),
    "resume": ("paused", lambda rival, seen: rival.resume("paused", if_entry=seen)),
    "skip": ("waits", lambda rival, seen: rival.skip("waits", "b", reason="r", if_entry=seen)),
    "set_result": ("waits", lambda rival, seen: rival.set_result("waits", "b", 1, reason="r", if_entry=seen)),
    "retry": ("fails", lambda rival, seen: rival.retry("fails", if_entry=seen)),
    "rewind": ("fails", lambda rival, seen: rival.rewind("fails", "a", if_entry=seen)),
}


def boom() -> None:
    raise StepError("no")


def filled(inline: Inline) -> Inline:
    inline.define("waits", step(lambda: 1, name="a"), wait_event_step("t", name="b"))
    inline.define("fails", step(lambda: 1, name="a"), step(boom, name="b", max_attempts=1))
    for workflow, run_id in (("waits", "waits"), ("waits", "paused"), ("fails", "fails")):
        inline.rival.run(workflow, {}, run_id)
    inline.drain()
    inline.rival.pause("paused")
    return inline


def newest(rival: Rival, run_id: str) -> int:
    return rival.history(run_id)[-1].id


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_needs_the_run_as_it_was_seen(inline: Inline, name: str) -> None:
    run_id, verb = VERBS[name]
    rival = filled(inline).rival
    seen, before = newest(rival, run_id), rival.state(run_id)
    for other in (seen - 1, seen + 1, 0):
        with pytest.raises(
            RunHasMoved,
            match=whole("Run '…' has moved since entry … of its history: look at it again. Nothing was changed."),
        ):
            verb(rival, other)
    assert (newest(rival, run_id), rival.state(run_id)) == (seen, before)
    assert verb(rival, seen) is not False
    assert newest(rival, run_id) > seen


def test_an_entry_is_a_whole_number(inline: Inline) -> None:
    for wrong in ("7", -1, 1.5, True, 2**70):
        with pytest.raises(
            InvalidArgument,
            match=whole("Invalid argument if_entry: … is not a whole number from 0 to 9,223,372,036,854,775,807."),
        ):
            inline.rival.cancel("x", if_entry=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_that_waits_for_another_ones_commit_sees_what_it_has_done(postgres_url: str, name: str) -> None:
    """A read before the transaction would not."""
    run_id, verb = VERBS[name]
    inline = filled(Inline(postgres_url))
    rival, seen = inline.rival, newest(inline.rival, run_id)
    outcome: list[Any] = []

    def act() -> None:
        try:
            outcome.append(verb(rival, seen))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=act)
    with inline.store.database.transaction() as connection:
        lock_run(connection, run_id)
        thread.start()
        wait_until(lambda: waits_for_a_lock(inline), what="the verb waits for the lock of the run")
        record(connection, run_id, None, "requested", by="another")
    join_all([thread])
    assert [type(one) for one in outcome] == [RunHasMoved]
    inline.close()


def waits_for_a_lock(inline: Inline) -> bool:
    with inline.store.database.autocommit() as connection:
        found = connection.exec_driver_sql(
            "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return found.first() is not None


def test_of_two_who_have_seen_the_same_one_acts(inline: Inline) -> None:
    rival = filled(inline).rival
    seen, outcomes = newest(rival, "fails"), list[str]()
    barrier = threading.Barrier(2)

    def act() -> None:
        barrier.wait()
        try:
            rival.rewind("fails", "a", if_entry=seen)
            outcomes.append("done")
        except RunHasMoved:
            outcomes.append("moved")

    threads = [threading.Thread(target=act) for _ in range(2)]
    for thread in threads:
        thread.start()
    join_all(threads)
    assert sorted(outcomes) == ["done", "moved"]


async def test_the_async_client_has_it_too(inline: Inline) -> None:
    rival = filled(inline).rival
    seen = newest(rival, "fails")
    async with AsyncRival(sync=rival) as other:
        for call in (
            other.cancel("waits", if_entry=1),
            other.pause("waits", if_entry=1),
            other.resume("paused", if_entry=1),
            other.skip("waits", "b", reason="r", if_entry=1),
            other.set_result("waits", "b", 1, reason="r", if_entry=1),
            other.rewind("fails", "a", if_entry=1),
            other.retry("fails", if_entry=1),
        ):
            with pytest.raises(RunHasMoved):
                await call
        assert (await other.retry("fails", if_entry=seen)).opened == ("b",)
