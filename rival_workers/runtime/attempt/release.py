"""Releases an attempt that has ended without a committed outcome, so that its row does not stay `running`.

After an outage of the database the attempt is handed back and does not count. Any other error before the commit is a
defect of the engine or of the schema. It counts as a lost attempt (`max_lost`), since the step would fail the same way
again and again.
"""

from __future__ import annotations

import logging

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, MissingTables
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import error_record
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.executor import Executor
from rival_workers.store.sweep_records import RunningAttempt

log = logging.getLogger("rival.coordinator")

#: insufficient_privilege: temporary, since an operator can grant the privilege again.
_PRIVILEGE = "42501"


class AttemptRelease:
    def __init__(self, transitions: StepTransitions, executor: Executor) -> None:
        self._transitions, self._executor = transitions, executor

    def release(self, attempt: Attempt, error: BaseException) -> None:
        """Has no effect if the outcome was committed after all: its token is stale."""
        claim, why = attempt.claim, f"{type(error).__name__}: {error}"
        released = "run %s step %s attempt %d: no outcome could be committed, it is released (%s)"
        trace = None if _is_temporary(error) else error
        log.error(released, claim.run_id, claim.path, attempt.claimed.attempt, why, exc_info=trace)
        try:
            self._release(attempt, error)
        except Exception as again:
            # The executor's heartbeat compares the table with what runs here, and releases the row then.
            log.error("run %s step %s: released later (%s)", claim.run_id, claim.path, again)
        finally:
            self._executor.running.remove(claim)
            self._executor.compare_soon()

    def _release(self, attempt: Attempt, error: BaseException) -> None:
        claimed, workflow = attempt.claimed, attempt.definition
        executor, number, lost = self._executor.id, claimed.attempt, claimed.lost
        running = RunningAttempt(attempt.claim, number, lost, executor, workflow.name, workflow.version, claimed.kind)
        if _is_temporary(error):
            self._transitions.hand_back(running)
        else:
            record = error_record(error, claimed.attempt)
            self._transitions.take_over(
                running, {**record, "message": f"its outcome cannot be stored: {record['message']}"}
            )


def _is_temporary(error: BaseException) -> bool:
    """True for outages, signals and missing privileges: the next attempt may succeed."""
    if isinstance(error, DatabaseUnavailable | DatabaseBusy | MissingTables):
        return True
    return is_from_signal(error) or (isinstance(error, DatabaseError) and error.sqlstate == _PRIVILEGE)
