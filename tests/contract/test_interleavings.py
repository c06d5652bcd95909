"""Two operations on one run at any interleaving, after any sequence of others: the history says what the rows say, no
end of a step is lost or applied twice, and the run can still be brought to its end.

Each example stops an operator's verb before one of its statements, and lets another operation run there until it has
ended or waits for a lock. RIVAL_EFFORT makes them more, RIVAL_STRESS_SEED makes others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import select

from rival_client import NotPossible
from rival_client.broker.message import StepMessage
from rival_client.db.run_tables import runs, steps
from rival_client.model.completion_token import CompletionToken
from rival_client.model.statuses import STEP_TERMINAL
from rival_workers import StepError, flow, parallel, step, wait_event_step
from rival_workers.store.claim_records import Claim, Claimed
from tests.support.effort import examples
from tests.support.histories import assert_histories_are_complete
from tests.support.inline import Clock, Inline
from tests.support.interleaving import interleaved

pytestmark = pytest.mark.usefixtures("locks_in_order")

EXAMPLES = examples(10)
SEED = int(os.environ.get("RIVAL_STRESS_SEED", "1"))
#: Statements of the longest verb.
STATEMENTS = 25
WHY = {"reason": "a test"}
DEAD = "dead"
PATHS = ["p/a", "p/b", "p/r", "p/w", "p/e", "p/k", "p/fl", "last"]


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """A message for each step, so that a run can be left between two of them."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(
        url, clock=Clock() if request.param == "sqlite" else None, continuation_budget=0.0, ring_grace=0.001
    )
    _define(opened)
    yield opened
    opened.close()


def _define(inline: Inline) -> None:
    def at_second_try(ctx: Any) -> int:
        if ctx.run.attempt == 1:
            raise StepError("not yet", behavior="retry")
        return 2

    def body(ctx: Any) -> Any:
        return [ctx.step(int), ctx.await_event("go"), ctx.step(int)]

    lanes = [
        [step(lambda: 1, name="a"), step(lambda: 2, name="b")],
        step(at_second_try, name="r", max_attempts=9, backoff="none"),
        wait_event_step("go", name="w"),
        step(lambda: None, name="e", execution_mode="external"),
        step(lambda: 3, name="k"),
        flow("fl", register=False)(body),
    ]
    inline.define("lanes", parallel("p", lanes), step(lambda: 4, name="last"))


class Operations:
    """What can happen to one run. An operation chooses its step when it is made: two threads share no dice."""

    def __init__(self, inline: Inline, run_id: str, dice: random.Random) -> None:
        self._inline, self._run_id, self._dice = inline, run_id, dice

    def begin(self) -> None:
        """Every lane is open, and one step is claimed by an executor that has died."""
        self._inline.rival.run("lanes", {}, run_id=self._run_id)
        self._deliver(self._inline.doorbell.messages.pop(0))
        [message] = [one for one in self._messages() if one.path == "p/k"]
        claimed = self._inline.store.claim_step(Claim(self._run_id, "p/k", message.token), None, DEAD)
        assert isinstance(claimed, Claimed)

    def verb(self) -> tuple[str, Callable[[], object]]:
        """An operator's."""
        rival, run_id, path = self._inline.rival, self._run_id, self._dice.choice(PATHS)
        verbs: dict[str, Callable[[], object]] = {
            "cancel": lambda: rival.cancel(run_id),
            "pause": lambda: rival.pause(run_id),
            "resume": lambda: rival.resume(run_id),
            "retry": lambda: rival.retry(run_id),
            f"rewind {path}": lambda: rival.rewind(run_id, path),
            f"skip {path}": lambda: rival.skip(run_id, path, **WHY),
            f"set_result {path}": lambda: rival.set_result(run_id, path, [1], **WHY),
        }
        # Those with a step have more to choose from.
        return self._dice.choices([*verbs.items()], [1, 1, 1, 1, 3, 3, 3])[0]

    def work(self) -> tuple[str, Callable[[], object]]:
        """Of the fleet, of an external system or of a sender of events."""
        rival, run_id = self._inline.rival, self._run_id
        messages = self._messages()
        message = self._dice.choice(messages) if messages else None
        token = self._row("p/e")
        work: dict[str, Callable[[], object]] = {
            "send": lambda: rival.send_event("go", 1, run_id=run_id),
            "take over p/k": self.take_over(),
            "answer p/e": lambda: rival.complete_step(str(CompletionToken(run_id, "p/e", max(1, token - 1))), 5),
        }
        if message is not None:
            work[f"deliver {message.path}"] = lambda: self._deliver(message)
        return self._dice.choices([*work.items()], [1, 1, 1, 5][: len(work)])[0]

    def any(self) -> tuple[str, Callable[[], object]]:
        return self.work() if self._dice.random() < 0.7 else self.verb()

    def finish(self) -> None:
        """What waits is resumed, retried, answered and sent to, until the run has ended."""
        rival, run_id = self._inline.rival, self._run_id
        for _ in range(50):
            state = rival.state(run_id)
            if state.is_terminal:
                return
            rival.resume(run_id)
            rival.send_event("go", 1, run_id=run_id)
            self._answer()
            self.take_over()()
            self._inline.drain()
            if self._inline.clock is not None:
                self._inline.clock.advance(1)
            # It publishes what a take-over has not.
            self._inline.keeper.run_once()
        raise AssertionError(f"the run is stuck: {[(one.path, one.status) for one in rival.state(run_id).steps]}")

    def delivery(self, path: str) -> Callable[[], object]:
        [message] = [one for one in self._messages() if one.path == path]
        return lambda: self._deliver(message)

    def take_over(self) -> Callable[[], object]:
        claim = Claim(self._run_id, "p/k", self._row("p/k"))
        return lambda: self._inline.store.take_over_step(claim)

    def _answer(self) -> None:
        token = str(CompletionToken(self._run_id, "p/e", max(1, self._row("p/e") - 1)))
        self._inline.rival.complete_step(token, 5)

    def _messages(self) -> list[StepMessage]:
        return [one for one in self._inline.doorbell.messages if one.run_id == self._run_id]

    def _deliver(self, message: StepMessage) -> None:
        self._inline.deliver(message)

    def _row(self, path: str) -> int:
        """The token of the step; 0 if it has no row."""
        found = self._inline.store.token_of(self._run_id, path)
        return 0 if found is None else found[1]


def refused(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except NotPossible:
        return True
    return False


def assert_nothing_is_open(inline: Inline, run_id: str) -> None:
    still_open = select(steps.c.path).join(runs, runs.c.id == steps.c.run_id)
    of_ended = (runs.c.id == run_id, runs.c.completed_at.is_not(None), steps.c.status.not_in(STEP_TERMINAL))
    with inline.store.database.autocommit() as connection:
        assert connection.scalars(still_open.where(*of_ended)).all() == []


@pytest.fixture
def started(postgres_url: str) -> Iterator[tuple[Inline, Operations]]:
    """Where a transaction is not alone: a run whose lanes are open."""
    inline = Inline(postgres_url, continuation_budget=0.0, ring_grace=0.001)
    _define(inline)
    operations = Operations(inline, "r", random.Random(1))
    operations.begin()
    yield inline, operations
    inline.close()


def status_of(inline: Inline, path: str) -> tuple[str, Any]:
    [found] = [one for one in inline.rival.state("r").steps if one.path == path]
    return found.status, found.result


def test_a_claim_does_not_come_between_the_look_of_set_result_at_a_step_and_its_end(
    started: tuple[Inline, Operations],
) -> None:
    inline, operations = started
    with interleaved(inline.store.database, "UPDATE rival_steps", operations.delivery("p/a")) as both:
        inline.rival.set_result("r", "p/a", [1], **WHY)
    assert (both.has_begun, both.error) == (True, None)
    assert status_of(inline, "p/a") == ("completed", [1])
    inline.rival.cancel("r")
    assert status_of(inline, "p/a") == ("completed", [1])


def test_a_take_over_does_not_come_between_the_look_of_skip_at_a_step_and_its_end(
    started: tuple[Inline, Operations],
) -> None:
    inline, operations = started
    with interleaved(inline.store.database, "UPDATE rival_steps", operations.take_over()) as both:
        inline.rival.skip("r", "p/k", **WHY)
    assert (both.has_begun, both.error) == (True, None)
    assert status_of(inline, "p/k") == ("skipped", None)
    operations.finish()
    assert inline.rival.state("r").status == "completed"


def test_a_claim_does_not_come_between_the_history_entry_of_a_rewind_and_the_rows_that_it_deletes(
    started: tuple[Inline, Operations],
) -> None:
    inline, operations = started
    with interleaved(inline.store.database, "DELETE FROM rival_steps", operations.delivery("p/a")) as both:
        inline.rival.rewind("r", "p/a")
    assert (both.has_begun, both.error) == (True, None)
    assert_histories_are_complete(inline.store.database)
    operations.finish()
    assert inline.rival.state("r").status == "completed"


@pytest.mark.slow
def test_two_operations_at_any_interleaving_leave_rows_that_their_history_explains(inline: Inline) -> None:
    crossed = 0
    for example in range(EXAMPLES):
        dice = random.Random(SEED * 1_000_000 + example)
        run_id, done = f"r{example}", list[str]()
        operations = Operations(inline, run_id, dice)
        operations.begin()
        for _ in range(dice.randrange(5)):
            name, before = operations.any()
            done.append(f"{name}{' (refused)' if refused(before) else ''}")
        (name, first), (other, second) = operations.verb(), operations.any()
        number = dice.randrange(STATEMENTS if inline.store.database.is_postgres else 3)
        done.append(f"{name}, at its statement {number}: {other}")
        with interleaved(inline.store.database, number, second) as both:
            refused(first)
        crossed += both.has_begun
        assert both.error is None or isinstance(both.error, NotPossible), (example, done, both.error)
        try:
            assert_histories_are_complete(inline.store.database, run_id)
            operations.finish()
            assert_nothing_is_open(inline, run_id)
            assert_histories_are_complete(inline.store.database, run_id)
        except Exception as error:
            raise AssertionError(f"example {example}: {done}") from error
        inline.doorbell.take()
    assert crossed > EXAMPLES / 4, "most verbs have fewer statements than the number that is drawn"
