"""External steps and heartbeats, in portable SQL: a step waits for an external system; an attempt extends its time."""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, select, update

from rival_client.db.locks import share_run
from rival_client.db.run_tables import steps
from rival_client.db.types import after, later, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.timers import is_near, look_at
from rival_client.sql.external_steps import ATTEMPT, HEARTBEAT
from rival_client.sql.history import record
from rival_client.sql.wake import suspend_run
from rival_workers.engine.heartbeat_limits import HeartbeatState
from rival_workers.store.claim_records import BeatResult, Claim
from rival_workers.store.sql.guards import after_or_never, earliest, guard, next_look, step_leaves_running
from rival_workers.store.sql.part import StorePart


class ExternalStepsSql(StorePart):
    def suspend_external_step(self, claim: Claim, attempt: int, config: StepConfig, state: Json | None) -> int | None:
        """Suspend the step until the external system answers; its function has returned. Returns the new token; None:
        stale, for example because the external system answered first."""
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            item = {ATTEMPT: attempt, HEARTBEAT: config.heartbeat}
            row = connection.execute(
                step_leaves_running(claim, "suspend_external_step", statuses.WAITING)
                .values(
                    attempts=steps.c.attempts - 1,
                    state=state,
                    item=item,
                    heartbeat_at=now(),
                    timeout_at=after_or_never(config.deadline),
                    **self._look(config.patience),
                )
                .returning(steps.c.execution_token, steps.c.executor_id)
            ).first()
            if row is None:
                return None
            stopped = suspend_run(connection, claim.run_id, claim.path)
            record(
                connection,
                claim.run_id,
                claim.path,
                entries.WAITS_FOR_EXTERNAL,
                by=row.executor_id,
                state=state,
                item=item,
                deadline=config.deadline,
                run=stopped,
            )
            return int(row.execution_token)

    def _look(self, seconds: float | None) -> dict[str, Any]:
        """The columns that say when the keeper looks at the step if no heartbeat or answer arrives."""
        if seconds is None:
            return {"due_at": None, "ring_at": None}
        look = look_at(seconds, is_near(seconds, self.near), self.ring_grace)
        return {"due_at": after(seconds), **next_look(look)}

    def beat_step(self, claim: Claim, config: StepConfig, progress: Json | None) -> BeatResult | None:
        """Record a heartbeat and extend the time limit of the attempt. None: the attempt has moved on or has timed out;
        a heartbeat does not revive it."""
        values: dict[str, Any] = {"heartbeat_at": now()} | ({} if progress is None else {"progress": progress})
        if config.heartbeat is not None and not config.is_external:
            limit = earliest(_limit(config.heartbeat, config.timeout), steps.c.deadline_at)
            values |= {"timeout_at": limit, "ring_at": limit, "rings": 0}
        in_time = steps.c.timeout_at.is_(None) | (steps.c.timeout_at > now())
        statement = (
            update(steps)
            .where(guard(claim, "beat_step"), in_time)
            .values(values)
            .returning(steps.c.timeout_at, now().label("now"))
        )
        with self.database.autocommit() as connection:
            row = connection.execute(statement).first()
        if row is None:
            return None
        return BeatResult(None if row.timeout_at is None else (row.timeout_at - row.now).total_seconds())

    def heartbeat_state_of(self, run_id: str, path: str) -> HeartbeatState | None:
        """The heartbeat state of a running step."""
        columns = (steps.c.started_at, steps.c.heartbeat_at, steps.c.timeout_at, steps.c.progress, now().label("now"))
        with self.database.autocommit() as connection:
            row = connection.execute(select(*columns).where(steps.c.run_id == run_id, steps.c.path == path)).first()
        if row is None or row.timeout_at is None:
            return None
        beaten = row.heartbeat_at is not None and row.heartbeat_at > row.started_at
        return HeartbeatState(
            row.heartbeat_at if beaten else row.started_at, row.timeout_at, row.now, beaten, row.progress
        )


def _limit(heartbeat: float, timeout: float | None) -> Any:
    """The next heartbeat is due before the timeout of the whole attempt, which heartbeats do not extend."""
    if timeout is None:
        return after(heartbeat)
    end = later(steps.c.started_at, timeout)
    return case((end < after(heartbeat), end), else_=after(heartbeat))
