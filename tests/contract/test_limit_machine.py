"""A state machine over limits: whatever is done in whatever order, the counts of gates are what rows and tickets use,
no limit is exceeded, and nothing waits while there is room."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy.exc import NoResultFound

from rival_client.db.limit_tables import limits
from rival_client.errors import RivalError
from rival_client.model.payload import Json
from rival_workers import flow, limit, step
from rival_workers.engine.decisions import Retry
from rival_workers.store.claim_records import Claim
from rival_workers.store.flow_records import ContinuedFlow
from tests.contract.stage import ERROR
from tests.support.effort import examples
from tests.support.inline import Inline
from tests.support.limits import Slots, assert_gates_are_consistent, work

_numbers = itertools.count()
RUNS = st.integers(0, 7)


class Limits(RuleBasedStateMachine):
    """Up to eight runs of one workflow: its first step has a limit for each key, its second one a global one, which the
    flow at its end shares."""

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self.slots, self.rival = slots, slots.inline.rival
        self.example = next(_numbers)
        self.begun: list[str] = []
        self.before: dict[str, int] = {}
        self.rival.set_limit("each", 2)
        self.rival.set_limit("all", 3)

    def run_id(self, number: int) -> str | None:
        return self.begun[number % len(self.begun)] if self.begun else None

    def on_run(self, number: int, act: Callable[[str], Any]) -> None:
        run_id = self.run_id(number)
        if run_id is not None:
            with suppress(RivalError):
                act(run_id)
        self.slots.inline.doorbell.take()

    def held(self, run_id: str) -> Claim | None:
        """The attempt of the run that is running."""
        for path in ("work", "then", "again"):
            with suppress(NoResultFound):
                row = self.slots.step(run_id, path)
                if row["status"] == "running":
                    return Claim(run_id, path, row["execution_token"])
        return None

    @rule(key=st.sampled_from(["a", "b"]))
    def start(self, key: str) -> None:
        if len(self.begun) < 8:
            run_id = f"m{self.example}-{len(self.begun)}"
            self.slots.start(run_id, {"k": key})
            self.begun.append(run_id)
            self.slots.claim(run_id)

    @rule(number=RUNS, path=st.sampled_from(["work", "work", "then", "again"]))
    def message(self, number: int, path: str) -> None:
        """A message for the step arrives, whether it may start or not."""

        def claim(run_id: str) -> None:
            with suppress(NoResultFound):
                self.slots.step(run_id, path)
                self.slots.claim(run_id, path)

        self.on_run(number, claim)

    @rule(number=RUNS, in_place=st.booleans())
    def finish(self, number: int, in_place: bool) -> None:
        def end(run_id: str) -> None:
            if (claim := self.held(run_id)) is not None:
                self.slots.running[run_id] = claim
                self.slots.finish(run_id, claim_for=self.slots.inline.process.executor.id if in_place else None)

        self.on_run(number, end)

    @rule(number=RUNS, how=st.sampled_from(["retry", "lose", "hand back", "late"]))
    def interrupt(self, number: int, how: str) -> None:
        def act(run_id: str) -> None:
            claim, store = self.held(run_id), self.slots.store
            if claim is None:
                return
            if how == "retry":
                store.retry_step(claim, Retry(0.0, ERROR), published=True)
            elif how == "lose":
                store.take_over_step(claim)
            elif how == "hand back":
                store.hand_back_step(claim)
            else:
                stale = Claim(claim.run_id, claim.path, claim.token - 1)
                assert store.take_over_step(stale) is None

        self.on_run(number, act)

    @rule(number=RUNS, verb=st.sampled_from(["cancel", "pause", "resume", "retry"]))
    def operate(self, number: int, verb: str) -> None:
        self.on_run(number, getattr(self.rival, verb))

    @rule(number=RUNS)
    def continue_as(self, number: int) -> None:
        """The flow starts over: it gives its slot back, and takes one again."""

        def start_over(run_id: str) -> None:
            claim = self.held(run_id)
            if claim is not None and claim.path == "again":
                assert self.slots.store.continue_flow(claim, Json("[1]"), None) == ContinuedFlow(claim.token + 1)
                assert self.slots.step(run_id, "again")["slots"] is None

        self.on_run(number, start_over)

    @rule(number=RUNS, path=st.sampled_from(["work", "then", "again"]))
    def rewind(self, number: int, path: str) -> None:
        self.on_run(number, lambda run_id: self.rival.rewind(run_id, path))

    @rule(name=st.sampled_from(["each", "all"]), maximum=st.sampled_from([1, 2, 3, 20]))
    def change(self, name: str, maximum: int) -> None:
        self.rival.set_limit(name, maximum)

    @rule()
    def sweep(self) -> None:
        self.slots.store.sweep_gates(100)

    @invariant()
    def the_counts_are_right_and_nothing_waits_beside_room(self) -> None:
        assert_gates_are_consistent(self.slots.database, at_rest=True, drains=True)

    @invariant()
    def no_limit_is_exceeded_except_by_what_ran_when_it_was_lowered(self) -> None:
        with self.slots.database.autocommit() as connection:
            allowed = {row.name: row.max for row in connection.execute(limits.select())}
        for key, used in self.slots.used.items():
            most = allowed["all" if key == "all" else "each"]
            assert used <= max(most, self.before.get(key, 0)), (key, used, most)
        self.before = self.slots.used

    def teardown(self) -> None:
        for run_id in self.begun:
            with suppress(RivalError):
                self.rival.cancel(run_id)
        assert set(self.slots.used.values()) <= {0}


def test_limits_hold_whatever_is_done_in_whatever_order(inline: Inline) -> None:
    slots = Slots(inline)
    each, everything = limit("each", 2, key="input.k"), limit("all", 3)
    inline.define(
        "w",
        step(work, concurrency_limit=each, max_attempts=100),
        step(work, name="then", concurrency_limit=everything, max_attempts=100),
        step(flow("again", register=False)(lambda ctx: None), concurrency_limit=everything, max_attempts=100),
    )
    checked = settings(
        max_examples=examples(4),
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    run_state_machine_as_test(lambda: Limits(slots), settings=checked)
