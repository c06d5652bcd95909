"""No attempt without an outcome: whatever user code raises and whatever the database refuses, nothing stays running."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseRefused, DatabaseUnavailable, MissingTables
from rival_workers import StepError, branch, for_each, step
from rival_workers.engine.interpreter import first
from rival_workers.runtime.executor import COMPARE_EVERY
from rival_workers.store.claim_records import Claim
from tests.support.inline import Inline

#: Errors of the database that may be over by the next try, and those that need a change of code or schema.
PASSING: list[DatabaseError] = [
    DatabaseUnavailable("away"),
    DatabaseUnavailable("read-only", "25006"),
    DatabaseBusy("deadlock", "40P01"),
    DatabaseRefused("permission denied", "42501"),
    MissingTables("no tables", "42P01"),
]
DEFECTS: list[Exception] = [
    DatabaseRefused("a constraint", "23514"),
    DatabaseRefused("unknown", None),
    ValueError("a defect"),
    KeyError("x"),
]


def fails(inline: Inline, operation: str, error: Exception, times: int = 1) -> None:
    """The store's next operations of that name are not done."""
    real: Callable[..., Any] = getattr(inline.store, operation)
    left = [times]

    def refused(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            setattr(inline.store, operation, real)
        raise error

    setattr(inline.store, operation, refused)


def entries_of(inline: Inline) -> list[str]:
    return [entry.what for entry in inline.rival.history("r")]


def impatient(inline: Inline) -> Inline:
    inline.coordinator._outage._seconds = 0.0
    return inline


def started(inline: Inline) -> Inline:
    inline.rival.run("w", run_id="r")
    inline.drain()
    return inline


# -- user code --------------------------------------------------------------------------------------------


async def exits() -> None:
    sys.exit(1)


async def exits_in_a_task() -> None:
    task = asyncio.create_task(exits())
    await asyncio.sleep(0.01)
    task.result()


def raises(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


ENDS: dict[str, Any] = {
    "KeyboardInterrupt": raises(KeyboardInterrupt()),
    "SystemExit": raises(SystemExit(0)),
    "GeneratorExit": raises(GeneratorExit()),
    "CancelledError": raises(asyncio.CancelledError()),
    "async exit": exits,
    "exit in a task": exits_in_a_task,
    "nul": raises(type("Nul", (Exception,), {"__qualname__": "a\x00b"})("x")),
}


@pytest.mark.parametrize("how", ENDS)
def test_whatever_a_step_raises_is_its_failure_and_the_next_async_step_runs(inline: Inline, how: str) -> None:
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    inline.define("w", step(ENDS[how], name="ends"))
    inline.define("after", step(fine))
    started(inline)
    assert inline.rival.result("r").status == "failed"
    inline.rival.run("after", run_id="s")
    inline.drain()
    assert inline.rival.result("s").result == "fine"
    assert inline.process.executor.running.all == set()


def test_the_same_for_handlers_compensations_conditions_and_items(inline: Inline) -> None:
    quits = raises(KeyboardInterrupt())
    inline.define("handler", step(quits, name="a", on_error=quits))
    inline.define("undo", step(lambda: 1, name="a", compensate=quits), step(quits, name="b"))
    inline.define("asks", branch("b", when=quits, then=[step(lambda: 1, name="c")]))
    inline.define("items", for_each("f", items=quits, do=[step(lambda: 1, name="c")]))
    inline.define("outside", step(quits, name="a", execution_mode="external"))
    names = ["handler", "undo", "asks", "items", "outside"]
    for name in names:
        inline.rival.run(name, run_id=name)
    inline.drain()
    assert {name: inline.rival.result(name).status for name in names} == dict.fromkeys(names, "failed")


# -- the database -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", PASSING, ids=lambda error: f"{type(error).__name__} {error}")
@pytest.mark.parametrize("operation", ["finish_step", "retry_step"])
def test_an_outcome_is_kept_through_any_error_of_the_database(
    inline: Inline, operation: str, error: DatabaseError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rival_workers.runtime.attempt.outage.FIRST_PAUSE", 0.001)
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        if operation == "retry_step" and len(calls) == 1:
            raise StepError("again", behavior="retry", backoff="none")
        return 7

    inline.define("w", step(work, max_attempts=2))
    fails(inline, operation, error, times=3)
    started(inline)
    assert inline.rival.result("r").result == 7
    assert len(calls) == (2 if operation == "retry_step" else 1)


@pytest.mark.parametrize("error", PASSING, ids=lambda error: f"{type(error).__name__} {error}")
def test_one_that_lasts_too_long_hands_the_attempt_back_and_uses_up_nothing(
    inline: Inline, error: DatabaseError
) -> None:
    impatient(inline).define("w", step(lambda: 7, name="work"))
    fails(inline, "finish_step", error)
    started(inline)
    state = inline.rival.state("r")
    assert (state.result, state.steps[0].attempts, state.steps[0].lost) == (7, 1, 0)
    assert entries_of(inline).count("handed_back") == 1
    assert inline.process.executor.running.all == set()


@pytest.mark.parametrize("error", PASSING[:1])
def test_what_could_not_be_handed_back_is_released_by_the_heartbeat(inline: Inline, error: DatabaseError) -> None:
    impatient(inline).define("w", step(lambda: 7, name="work"))
    fails(inline, "finish_step", error)
    fails(inline, "hand_back_step", error)
    started(inline)
    assert inline.rival.state("r").steps[0].status == "running"
    inline.process.executor.beat_once()
    inline.drain()
    assert inline.rival.result("r").result == 7
    assert entries_of(inline).count("handed_back") == 1


@pytest.mark.parametrize("error", DEFECTS, ids=repr)
def test_a_defect_on_the_way_to_the_commit_is_bounded_and_named(inline: Inline, error: Exception) -> None:
    calls: list[int] = []
    real = inline.store.finish_step

    def finish(claim: Claim, end: Any, *args: Any, **options: Any) -> Any:
        if end.status == "completed":
            raise error
        return real(claim, end, *args, **options)

    inline.store.finish_step = finish  # type: ignore[method-assign]
    impatient(inline).define("w", step(lambda: calls.append(1), name="work"))
    started(inline)
    result = inline.rival.result("r")
    assert result.status == "failed"
    assert (result.error or {})["message"] == f"its outcome cannot be stored: {error}"
    assert len(calls) == inline.settings.max_lost + 1


def test_a_result_that_the_database_cannot_store_is_the_steps_failure(inline: Inline) -> None:
    inline.define("w", step(lambda: 7, name="work"))
    fails(inline, "finish_step", DatabaseRefused("a number is out of range", "22003"))
    started(inline)
    result = inline.rival.result("r")
    assert (result.status, (result.error or {})["type"]) == ("failed", "InvalidPayload")
    assert (result.error or {})["message"] == (
        "the database cannot store what step 'work' gave: a number is out of range"
    )


@pytest.mark.parametrize("operation", ["read_step", "read_item", "failure_of"])
def test_a_read_that_fails_in_the_middle_of_user_code_is_not_the_steps_failure(inline: Inline, operation: str) -> None:
    def reads(ctx: Any) -> Any:
        try:
            return {
                "read_step": lambda: inline.coordinator.reads.step("r", "a"),
                "read_item": lambda: inline.coordinator.reads.item("r", "a"),
                "failure_of": lambda: inline.coordinator.reads.failure("r"),
            }[operation]() and None
        except Exception:
            return "swallowed"

    impatient(inline).define("w", step(reads, name="a"))
    fails(inline, operation, DatabaseUnavailable("away"))
    started(inline)
    assert (inline.rival.result("r").status, inline.rival.result("r").result) == ("completed", None)
    assert entries_of(inline).count("handed_back") == 1


def test_an_error_of_the_users_own_database_is_the_steps_failure(inline: Inline) -> None:
    def asks() -> None:
        with inline.store.database.engine.connect() as connection:
            connection.execute(text("SELECT nonsense FROM rival_runs"))

    inline.define("w", step(asks))
    inline.define("ours", step(raises(DatabaseUnavailable("raised by the step")), name="a"))
    started(inline)
    inline.rival.run("ours", run_id="s")
    inline.drain()
    assert inline.rival.result("r").status == inline.rival.result("s").status == "failed"


# -- what the table says and what runs --------------------------------------------------------------------


def test_every_few_heartbeats_what_runs_in_the_table_only_is_released(inline: Inline) -> None:
    inline.define("w", step(lambda: 7, name="work"))
    inline.rival.run("w", run_id="r")
    [message] = inline.doorbell.take()
    version = inline.registry.find("w", message.version)
    assert version is not None
    # A claim of this very executor that nothing here knows of.
    assert inline.store.begin_run("r", 0, first(version.plan), claim_for=inline.process.executor.id)
    for _ in range(COMPARE_EVERY):
        inline.process.executor.beat_once()
    inline.drain()
    assert inline.rival.result("r").result == 7
    assert entries_of(inline).count("handed_back") == 1


def test_what_runs_here_is_never_released(inline: Inline) -> None:
    def work() -> str:
        for _ in range(3 * COMPARE_EVERY):
            inline.process.executor.beat_once()
        return "once"

    inline.define("w", step(work), step(work, name="again"))
    started(inline)
    assert inline.rival.result("r").status == "completed"
    assert "handed_back" not in entries_of(inline)


def test_a_claim_whose_answer_is_under_way_is_not_released(inline: Inline) -> None:
    """The heartbeat looks between the claim's commit and the moment at which the attempt is known here."""
    real = inline.store.claim_step

    def claim(*args: Any, **options: Any) -> Any:
        claimed = real(*args, **options)
        for _ in range(3 * COMPARE_EVERY):
            inline.process.executor.beat_once()
        return claimed

    inline.store.claim_step = claim  # type: ignore[method-assign]
    inline.coordinator.stopping = True
    inline.define("w", step(lambda: 7, name="work"))
    started(inline)
    assert inline.rival.result("r").result == 7
    assert "handed_back" not in entries_of(inline)


def test_an_executor_under_a_new_id_takes_a_late_claim_of_the_old_one_along(inline: Inline) -> None:
    executor, real = inline.process.executor, inline.store.claim_step

    def claim(claim: Any, timeout: Any, by: str, **options: Any) -> Any:
        inline.store.delete_executors([by])
        executor.beat_once()  # declared dead: it takes a new id while the claim is under way
        claimed = real(claim, timeout, by, **options)
        executor.compare_soon()
        executor.beat_once()
        return claimed

    inline.store.claim_step = claim  # type: ignore[method-assign]
    inline.coordinator.stopping = True
    inline.define("w", step(lambda: 7, name="work"))
    started(inline)
    assert inline.rival.result("r").result == 7
    assert "adopted" in entries_of(inline)
