"""`ctx.gather`: several steps of a flow at once. Each is committed when it ends, whatever becomes of the others; the
flow waits for those that are to be tried again only when all have come to an end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rival_workers.engine.replay import Ending
from rival_workers.errors import StepFailed
from rival_workers.runtime.flow_limits import FlowStepLimit
from rival_workers.runtime.flow_steps import FlowStep
from rival_workers.runtime.suspending import Moved, Suspend

if TYPE_CHECKING:
    # A workflow's file is imported without the store.
    from rival_workers.runtime.flow_port import AttemptPort

#: How many steps of one `gather` run at a time.
AT_ONCE = 8


def gather(steps: Sequence[FlowStep], port: AttemptPort) -> list[Any]:
    """Their results, in their order."""
    slots = threading.Semaphore(AT_ONCE)
    last = max((step.mark.number for step in steps), default=0)
    steps = [replace(step, mark=replace(step.mark, gathered=last)) for step in steps]
    gathered = [_Gathered(step, port, slots.release) for step in steps]
    for one in gathered:
        slots.acquire()
        one.start()
    endings = [one.ended.result() for one in gathered]
    again = [one.left() for one in gathered if one.waits]
    if again:
        port.suspend(None, min(again))
        raise Suspend
    results = [_result(step, ending) for step, ending in zip(steps, endings, strict=True)]
    for result in results:
        if isinstance(result, StepFailed):
            raise result
    return results


def _result(step: FlowStep, ending: Ending | None) -> Any:
    try:
        return step.result(ending)
    except StepFailed as failed:
        return failed


class _Gathered:
    """One of them, in a thread of its own: one that is over its time is left behind in it."""

    def __init__(self, step: FlowStep, port: AttemptPort, when_over: Callable[[], None]) -> None:
        self._step, self._port = step, port
        self._lock = threading.Lock()
        self._due = 0.0
        #: How it has ended now; None: it had ended before.
        self.ended: Future[Ending | None] = Future()
        self.ended.add_done_callback(lambda _: when_over())

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"rival-gather-{self._step.mark.path}", daemon=True).start()

    @property
    def waits(self) -> bool:
        ending = self.ended.result()
        return ending is not None and ending.delay is not None

    def left(self) -> float:
        """Seconds until it is tried again."""
        return max(0.0, self._due - self._port.timer())

    def _run(self) -> None:
        try:
            if self._step.is_over:
                self.ended.set_result(None)
            elif (waiting := self._step.waiting) is not None:
                self._end(waiting, new=False)
            else:
                with self._port.limited(self._step.config, self._over_time):
                    ending = self._step.call()
                self._end(ending)
        except BaseException as error:
            # Also what ends a flow's attempt: it does so in the flow's own thread.
            with self._lock:
                if not self.ended.done():
                    self.ended.set_exception(error)

    def _over_time(self, limit: FlowStepLimit) -> None:
        self._end(self._step.over_time(limit))

    def _end(self, ending: Ending, *, new: bool = True) -> None:
        """Once: a result that comes after the timeout comes too late, and the other way round."""
        with self._lock:
            if self.ended.done():
                raise Moved
            if new:
                self._port.record(ending)
            self._due = self._port.timer() + (ending.delay or 0.0)
            self.ended.set_result(ending)
