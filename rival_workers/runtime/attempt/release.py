"""Releases an attempt that has ended without a committed outcome, so that its row does not stay `running`.

A database that could not be used is not the attempt's fault: it is handed back and uses up nothing. Any other error on
the way to the commit is a defect of the engine or of the schema; it counts as a loss, of which a step has a few, since
the same step would meet it again and again.
"""

from __future__ import annotations

import logging

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, MissingTables
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import error_record
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.executor import Executor
from rival_workers.store.interface import RunningAttempt

log = logging.getLogger("rival.coordinator")

#: insufficient_privilege: an operator takes it away and gives it back.
_PRIVILEGE = "42501"


class AttemptRelease:
    def __init__(self, transitions: StepTransitions, executor: Executor) -> None:
        self._transitions, self._executor = transitions, executor

    def release(self, attempt: Attempt, error: BaseException) -> None:
        """Stale, and without an effect, if the outcome was committed after all."""
        claim = attempt.claim
        log.error("run %s step %s attempt %d: no outcome could be committed, it is released (%s: %s)", claim.run_id,
                  claim.path, attempt.claimed.attempt, type(error).__name__, error,
                  exc_info=None if _passes(error) else error)  # fmt: skip
        try:
            self._give_back(attempt, error)
        except Exception as again:
            # The heartbeat compares what the table says with what runs here, and releases it then.
            log.error("run %s step %s: released later (%s)", claim.run_id, claim.path, again)
        finally:
            self._executor.claim.let_go(claim)
            self._executor.doubt()

    def _give_back(self, attempt: Attempt, error: BaseException) -> None:
        claimed, definition = attempt.claimed, attempt.definition
        running = RunningAttempt(
            attempt.claim, claimed.attempt, claimed.lost, self._executor.id, definition.name, definition.version,
            claimed.kind,
        )  # fmt: skip
        if _passes(error):
            self._transitions.release(running, "handed_back")
        else:
            record = error_record(error, claimed.attempt)
            self._transitions.take_over(
                running, {**record, "message": f"its outcome cannot be stored: {record['message']}"}
            )


def _passes(error: BaseException) -> bool:
    """It may be over by the next try."""
    if isinstance(error, DatabaseUnavailable | DatabaseBusy | MissingTables):
        return True
    return is_from_signal(error) or (isinstance(error, DatabaseError) and error.sqlstate == _PRIVILEGE)
