"""A flow's attempt and its run: commits what the flow does, under the token of its step, and rings after. Each raises
Moved when the attempt does not count any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from rival_client.doorbell import Doorbell
from rival_client.errors import DatabaseError
from rival_client.message import Ring
from rival_client.payload import Json
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.plan import StepConfig
from rival_workers.engine.replay import Checkpoint, Ending, Mark
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow_limits import FlowStepLimit
from rival_workers.runtime.limits import TimeLimits
from rival_workers.runtime.moves import Position
from rival_workers.runtime.patience import Patience
from rival_workers.runtime.suspending import Again, Moved, OutOfReach, Suspend
from rival_workers.settings import WorkerSettings
from rival_workers.store.base import ChildRun, Store

T = TypeVar("T")


class AttemptPort:
    def __init__(
        self, position: Position, store: Store, doorbell: Doorbell, patience: Patience, limits: TimeLimits,
        settings: WorkerSettings,
    ) -> None:  # fmt: skip
        self._position, self._store, self._doorbell = position, store, doorbell
        self._patience, self._limits, self._settings = patience, limits, settings
        self.max_payload, self.timer = settings.max_payload, limits.timer

    def checkpoints(self) -> list[Checkpoint]:
        held = self._position.held
        return self._kept(lambda: self._store.read_checkpoints(held.run_id, held.path))

    def record(self, ending: Ending) -> None:
        if not self._kept(lambda: self._store.record_checkpoint(self._position.held, ending)):
            raise Moved
        failpoint("after_checkpoint_commit")

    def suspend(self, ending: Ending | None, seconds: float | None) -> None:
        """The flow waits for so many seconds, or without a time; with how a checkpoint stands now."""
        token = self._kept(lambda: self._store.suspend_step(self._position.held, ending, seconds))
        self._suspended(token, seconds)

    def wait(self, mark: Mark, waits: Sequence[WaitFor], timeout: float | None) -> dict[str, Any] | None:
        """The event that was there already; otherwise the flow is suspended."""
        done = self._kept(lambda: self._store.suspend_for_event(self._position.held, mark, waits, timeout))
        if done is None:
            raise Moved
        if done.event is not None:
            return done.event
        self._suspended(done.token, timeout)
        raise Suspend

    def give_up(self, mark: Mark) -> dict[str, Any] | None:
        """The event that has come at the last moment, after all."""
        over = self._kept(lambda: self._store.give_up_wait(self._position.held, mark))
        if over is None:
            raise Moved
        return over.event

    def start_child(self, mark: Mark, run_id: str, workflow: str, its_input: Json, *, awaited: bool) -> str:
        child = ChildRun(run_id, workflow, its_input)
        held = self._position.held
        child_id = self._kept(lambda: self._store.start_child(held, mark, child, awaited=awaited))
        if child_id is None:
            raise Moved
        failpoint("after_child_commit")
        self._ring_run(child_id)
        return child_id

    def continue_as(self, its_input: Json) -> NoReturn:
        token = self._kept(lambda: self._store.continue_flow(self._position.held, its_input))
        if token is None:
            raise Moved
        failpoint("after_continue_commit")
        raise Again(token)

    @contextmanager
    def limited(self, config: StepConfig, when_over: Callable[[FlowStepLimit], None]) -> Iterator[None]:
        """Call `when_over` if the step that the block is takes too long."""
        limit = FlowStepLimit(config, self._limits.timer)

        def over() -> bool:
            try:
                when_over(limit)
            except Moved:
                return False  # the step has ended in this very moment
            return True

        with self._limits.kept(config, over) as limit.alarm, limit.is_current():
            yield

    # -- committing and ringing ---------------------------------------------------------------------------

    def _kept(self, operation: Callable[[], T]) -> T:
        """Each is guarded by the token, so that it may be tried again when the database was away. If it was
        away for too long, that is not the flow's failure."""
        try:
            return self._patience.keep(operation)
        except DatabaseError as away:
            raise OutOfReach from away

    def _suspended(self, token: int | None, seconds: float | None) -> None:
        if token is None:
            raise Moved
        failpoint("after_suspend_commit")
        if seconds is not None and seconds <= self._settings.near:
            self._doorbell.ring([self._position.ring(self._position.held.path, token, countdown=max(0.0, seconds))])

    def _ring_run(self, run_id: str) -> None:
        started = self._kept(lambda: self._store.started_run(run_id))
        if started is not None:
            self._doorbell.ring([Ring(run_id, None, *started)])
