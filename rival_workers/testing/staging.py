"""Saying what steps do in a lab: `replace`, `fail`, `crash`, `delay`, `time_out`."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from typing import Any

from rival_workers.definition.inject import Injection
from rival_workers.definition.returns import Returns
from rival_workers.definition.steps import seconds as in_seconds
from rival_workers.engine.decisions import Failure, Success
from rival_workers.errors import StepError
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.attempt.invoke import call
from rival_workers.testing.clock import MOMENT
from rival_workers.testing.errors import LabError
from rival_workers.testing.script import Crash, Go, Script, Where
from rival_workers.testing.world import World

Duration = float | dt.timedelta


class Staging:
    """`step` is a name, a path or the end of one; `times` counts for each step of each run by itself, None: always.
    `workflow` means the runs of that workflow only.
    """

    _world: World

    def __init__(self) -> None:
        self._script = Script()
        #: What the lab was asked for in the middle of an attempt, and cannot do: the test's mistake, not the step's.
        self._mistake: LabError | None = None

    def replace(self, step: str, function: Callable[..., Any], *, workflow: str | None = None) -> None:
        """From now on this function is called instead of the step's own. It may ask for what the step may ask for."""
        self._script.replace(Where(step, workflow), function)

    def fail(
        self, step: str, *, times: int | None = 1, error: BaseException | None = None, workflow: str | None = None
    ) -> None:
        """The step's next `times` attempts raise the error, without calling its function."""
        raised = error or StepError(f"{step} was made to fail", behavior="retry")

        def fail(go: Go) -> Any:
            raise raised.with_traceback(None)

        self._script.ends(Where(step, workflow), fail, times)

    def crash(self, step: str, *, times: int | None = 1, after: bool = False, workflow: str | None = None) -> None:
        """The worker dies in the middle of the attempt: before the function is called, or `after` it has done its work
        and before that is committed. The attempt is taken over when the lease has run out.
        """

        def crash(go: Go) -> Any:
            made = go() if after else None
            if inspect.iscoroutine(made):
                async_steps.run(made)
            raise Crash

        self._script.ends(Where(step, workflow), crash, times)

    def delay(self, step: str, seconds: Duration, *, times: int | None = None, workflow: str | None = None) -> None:
        """Each attempt takes so long. If that is longer than its timeout, it is timed out, and its result is late."""

        def take_time(go: Go) -> Any:
            self._world.let_pass(in_seconds(seconds))
            return go()

        self._script.takes_time(Where(step, workflow), take_time, times)

    def time_out(self, step: str, *, times: int | None = 1, workflow: str | None = None) -> None:
        """The step's next `times` attempts take longer than their timeout."""

        def overstay(go: Go) -> Any:
            self._world.let_pass(None)
            return go()

        self._script.takes_time(Where(step, workflow), overstay, times)

    # -- playing it ---------------------------------------------------------------------------------------

    def _call(
        self, real: Injection, context: Context, max_payload: int, kind: str, returns: Returns | None
    ) -> Success | Failure:
        # A moment for each attempt: what happens one after the other can be told apart by its time.
        self._world.clock.advance(MOMENT)
        return call(Injection(lambda: self._play(real, context), (), ()), context, max_payload, kind, returns)

    def _play(self, real: Injection, context: Context) -> Any:
        try:
            return self._script.play(real, context)
        except LabError as mistake:
            self._mistake = mistake
            raise

    def _own_up(self) -> None:
        """Raise the test's mistake, if there was one."""
        mistake, self._mistake = self._mistake, None
        if mistake is not None:
            raise mistake
