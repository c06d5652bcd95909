"""Opens the row of a step or composite in portable SQL: claimed, left to a message, or waiting for a time or event."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, insert, select

from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig, shortest
from rival_client.model.starts.priorities import level_of
from rival_client.model.starts.queues import ServedQueues
from rival_client.model.timers import NextLook, is_near, look_at
from rival_client.sql.gates import leave
from rival_client.sql.history import HistoryWriter
from rival_client.sql.idempotency import end_ownership
from rival_client.sql.wake import suspend_run
from rival_workers.engine.effects import ConfigOf, OpenRow, PolicyOf, no_options, no_policy
from rival_workers.store.claim_records import FinishResult
from rival_workers.store.sql.event_waits import Waiting, begin_wait
from rival_workers.store.sql.guards import after_or_never


@dataclass(frozen=True)
class RunRow:
    """The columns of a run that new rows need."""

    #: The token of new rows. It is above all tokens of the run, so a path that a rewind deleted gets higher tokens than
    #: before.
    token: int
    paused: bool
    level: int


@dataclass
class OpenRowsSql:
    """Opens rows of one run, and collects the rows that need a message and the row that was claimed."""

    connection: Connection
    run_id: str
    claim_for: str | None
    ring_grace: float
    near: float
    writer: HistoryWriter
    config_of: ConfigOf = no_options
    policy_of: PolicyOf = no_policy
    #: Items of reopened rows, by path.
    carried: dict[str, Any] = field(default_factory=dict)
    opened: list[OpenRow] = field(default_factory=list)
    claimed: OpenRow | None = None
    #: Slots of limits that are no longer used; released at the end, after all other locks.
    slots: list[int] = field(default_factory=list)
    #: Ended steps with the result for other steps with the same idempotency key, or None if they cannot use it.
    ended_keys: dict[str, Json | None] = field(default_factory=dict)
    #: The queues of the worker, which claims no step of another queue.
    served: ServedQueues = field(default_factory=ServedQueues)
    #: If True, only inline steps are claimed.
    only_inline: bool = False
    #: If True, the step that opens has run already: it is claimed in a paused run, too.
    next_has_run: bool = False

    @cached_property
    def run_row(self) -> RunRow:
        columns = (runs.c.token, runs.c.paused_at, runs.c.priority)
        row = self.connection.execute(select(*columns).where(runs.c.id == self.run_id)).one()
        return RunRow(row.token - 1, row.paused_at is not None, row.priority or 0)

    @property
    def first_token(self) -> int:
        """The token of new rows."""
        return self.run_row.token

    def conclude(self) -> FinishResult:
        """Write the history and return the opened rows."""
        self.writer.write()
        token = self.first_token if self.claimed or self.opened else 0
        ended, grace = self.ended_keys, self.ring_grace
        grants = end_ownership(self.connection, self.run_id, ended, grace) if ended else []
        grants += leave(self.connection, self.slots, grace)
        return FinishResult(self.claimed, tuple(self.opened), token=token, grants=tuple(grants))

    def _token(self, opening: OpenRow) -> int:
        return self.first_token if opening.token is None else opening.token

    def open(self, opening: OpenRow) -> None:
        token = self._token(opening)
        row = {
            "run_id": self.run_id,
            "path": opening.path,
            "kind": opening.kind,
            "created_at": now(),
            "execution_token": token,
            "timeout_token": token,
        }
        opened = self._opened_as(opening)
        self.connection.execute(insert(steps).values({**row, **opened}))

    def _opened_as(self, opening: OpenRow) -> dict[str, Any]:
        if not opening.is_leaf:
            lanes = opening.lanes
            self.writer.add(entries.OPENED, opening.path, kind=opening.kind)
            return {
                "status": statuses.WAITING,
                "started_at": now(),
                "total": lanes,
                "opened": lanes,
                "remaining": lanes,
            }
        config = self.config_of(opening.path)
        if config.opens_plainly and not self.run_row.level:
            return self._leaf(opening, config, opening.delay)
        delay = self._delay(opening, config)
        routed = replace(opening, route=config.route(self.run_row.level))
        values = self._leaf(routed, config, delay)
        return {**values, **own_values(config, delay, began=self.claimed is routed)}

    def _delay(self, opening: OpenRow, config: StepConfig) -> float:
        """Seconds before the step may start."""
        delay = max(opening.delay, config.delay or 0.0)
        if config.scheduled_at is None:
            return delay
        present: dt.datetime = self.connection.execute(select(now().label("now"))).scalar_one()
        return max(delay, (config.scheduled_at - present).total_seconds())

    def _leaf(self, opening: OpenRow, config: StepConfig, delay: float) -> dict[str, Any]:
        if opening.wait is not None:
            waiting = Waiting(self.run_id, opening.path, self.first_token)
            event = begin_wait(self.connection, waiting, [opening.wait], self.writer)
            if event is None:
                return self._until(opening, config, opening.wait.timeout)
            return {**self._starting(opening, config, item=event), "item": event}
        item = {"item": self.carried[opening.path]} if opening.path in self.carried else {}
        begin = self._starting(opening, config, **item) if delay <= 0 else self._until(opening, config, delay, **item)
        return {**begin, **item}

    def _until(self, opening: OpenRow, config: StepConfig, seconds: float | None, **item: Any) -> dict[str, Any]:
        """Let the row wait until a time; `seconds` None: for an event or answer that has no timeout."""
        stopped = suspend_run(self.connection, self.run_id, opening.path)
        own = recorded(config)
        self.writer.add(entries.WAITING, opening.path, kind=opening.kind, seconds=seconds, run=stopped, **item, **own)
        if seconds is None:
            return {"status": statuses.WAITING}
        near = is_near(seconds, self.near)
        if near:
            self.opened.append(replace(opening, delay=seconds))
        look = look_at(seconds, near, self.ring_grace)
        return {"status": statuses.WAITING, "due_at": after(seconds), **look_within(look, config, seconds)}

    def _starting(self, opening: OpenRow, config: StepConfig, **item: Any) -> dict[str, Any]:
        """Claim the step for `claim_for`, if given and if nothing else was claimed; otherwise leave it to a message. A
        step with limits is claimed in a transaction of its own, because its gates are locked after everything else."""
        token, paused = self._token(opening), self.run_row.paused and not self.next_has_run
        own, elsewhere = recorded(config), config.queue not in self.served
        elsewhere |= self.only_inline and not config.is_inline
        if self.claim_for is None or self.claimed is not None or paused or config.limits or elsewhere:
            self.opened.append(opening)
            self.writer.add(entries.SCHEDULED, opening.path, kind=opening.kind, **item, **own)
            return {"status": statuses.PENDING, **look_within(NextLook(self.ring_grace, 0), config)}
        self.claimed = opening
        self.writer.add(entries.CLAIMED, opening.path, kind=opening.kind, attempt=1, **item, **own)
        timeout = after_or_never(shortest(config.limit, config.step_deadline))
        policy = self.policy_of(opening.path)
        return {
            "status": statuses.RUNNING,
            "attempts": 1,
            "execution_token": token + 1,
            "timeout_token": token + 1,
            "executor_id": self.claim_for,
            "started_at": now(),
            "timeout_at": timeout,
            "ring_at": timeout,
            "policy": None if policy is None else Json(policy),
        }


# -- columns that come from the options of a step ----------------------------------------------------------


def own_values(config: StepConfig, delay: float, *, began: bool) -> dict[str, Any]:
    """`delay`: seconds before the step may start, which do not count towards the queue timeout. `began`: its first
    attempt already runs."""
    deadline, queue_timeout = config.step_deadline, config.queue_timeout
    values = {
        "queue": config.queue,
        "priority": level_of(config.priority),
        "deadline_at": None if deadline is None else after(deadline),
        "start_by": None if queue_timeout is None or began else after(max(0.0, delay) + queue_timeout),
    }
    return {name: value for name, value in values.items() if value is not None}


def look_within(look: NextLook, config: StepConfig, delay: float = 0.0) -> dict[str, Any]:
    """The keeper looks at the row at the latest at the first of its limits."""
    start_by = None if config.queue_timeout is None else delay + config.queue_timeout
    seconds = shortest(look.seconds, start_by, config.step_deadline)
    return {"ring_at": after(seconds), "rings": look.rings}


def recorded(config: StepConfig) -> dict[str, Any]:
    """The options of the row that history entries contain."""
    return {"queue": config.queue, "priority": config.priority}
