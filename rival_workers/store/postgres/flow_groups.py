"""Commits of several flows in one transaction: checkpoints and continue_as. The statements are in `groups.sql` and
`flow_groups.sql`.

Calls of several threads are batched: calls that arrive while a batch is being executed form the next batch. A single
call is executed at once, in its own thread. One of the waiting threads executes each batch, not a background thread.

Flows whose steps are quick come back at once with their next calls. So a batch also waits for the calls of the threads
that the batch before has answered, but no longer than that batch took: at worst the wait costs as much as the commit
that it saves. It does not wait again for those that have not come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import GroupValue, Statement
from rival_client.errors import DatabaseBusy, DatabaseRefused
from rival_client.model.payload import Json, serialise
from rival_client.model.record import record
from rival_client.sql.history import as_json
from rival_workers.engine.replay import CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.flow_records import ContinuedFlow, FlowClaim
from rival_workers.store.group_commits import ALONE
from rival_workers.store.postgres.statements import load_statements

RECORD_CHECKPOINTS = load_statements("groups.sql")["rival_record_checkpoints"]
_STATEMENTS = load_statements("flow_groups.sql")
LOCK_RUNS, CONTINUE_FLOWS = _STATEMENTS["rival_lock_runs"], _STATEMENTS["rival_continue_flows"]

Call = TypeVar("Call")
Answer = TypeVar("Answer")

#: Maximum number of calls in a batch.
MOST = 64
#: Seconds. The longest that a batch waits for calls.
LONGEST_WAIT = 0.004


class _Entry(Generic[Call, Answer]):
    __slots__ = ("answer", "call", "error", "leads", "woken")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        #: True if the thread of this entry executes the next batch.
        self.leads = False
        #: Locked until the call is answered, or executes the next batch. An event would cost several times as much.
        self.woken = threading.Lock()


class JoinedCalls(Generic[Call, Answer]):
    def __init__(self, make: Callable[[Sequence[Call]], Sequence[Answer]]) -> None:
        """`make` answers the calls in their order. An exception that it raises is raised in each of their threads."""
        self._make = make
        self._lock = threading.Lock()
        self._is_busy = False
        self._waiting: deque[_Entry[Call, Answer]] = deque()
        #: How many calls the next batch probably has, and how long the last one took.
        self._expected, self._took = 1, 0.0
        #: The next batch waits for calls until this is set.
        self._full: threading.Event | None = None

    def call(self, call: Call) -> Answer:
        own = _Entry[Call, Answer](call)
        with self._lock:
            own.leads, self._is_busy = not self._is_busy, True
            if not own.leads:
                own.woken.acquire()
                self._waiting.append(own)
                if self._full is not None and len(self._waiting) >= self._expected - 1:
                    self._full.set()
        if not own.leads:
            own.woken.acquire()
        if own.leads:
            self._lead(own)
        if own.error is not None:
            raise own.error
        return own.answer  # type: ignore[return-value]

    def _lead(self, own: _Entry[Call, Answer]) -> None:
        group = [own]
        try:
            self._gather(group)
            began = time.monotonic()
            for one, answer in zip(group, self._make([one.call for one in group]), strict=True):
                one.answer = answer
            self._took = time.monotonic() - began
        except BaseException as error:
            for one in group:
                one.error = error
        finally:
            self._hand_on(len(group))
            for one in group[1:]:
                one.woken.release()

    def _gather(self, group: list[_Entry[Call, Answer]]) -> None:
        """Add the calls that have come, or come soon."""
        with self._lock:
            misses = len(self._waiting) < min(self._expected, MOST) - 1
            full = self._full = threading.Event() if misses else None
        if full is not None:
            full.wait(min(self._took, LONGEST_WAIT))
        with self._lock:
            self._full = None
            while self._waiting and len(group) < MOST:
                group.append(self._waiting.popleft())

    def _hand_on(self, answered: int) -> None:
        """Let the first call that arrived in the meantime execute the next batch."""
        with self._lock:
            self._expected = answered + len(self._waiting)
            after = self._waiting.popleft() if self._waiting else None
            self._is_busy = after is not None
        if after is not None:
            after.leads = True
            after.woken.release()


@record(frozen=True)
class RecordCall:
    claim: Claim
    write: CheckpointWrite
    state: Json | None

    @property
    def can_join(self) -> bool:
        """True for a new checkpoint that has ended, as most have."""
        return self.write.ref.found is None and self.write.delay is None


def checkpoint_row(write: CheckpointWrite, state: Json | None) -> dict[str, Any]:
    ref = write.ref
    return {
        "path": ref.path,
        "kind": ref.kind,
        "number": ref.number,
        "begun_after": ref.begun_after,
        "end_order": write.end_order,
        "status": write.status,
        "result": write.result,
        "error": write.error,
        "attempts": write.attempts,
        "what": write.what,
        "detail": as_json({**write.detail, "state": state}),
    }


@record(frozen=True)
class ContinueCall:
    claim: Claim
    its_input: Json
    state: Json | None
    grace: float
    claim_by: FlowClaim | None
    #: The queues of the worker, as a Postgres array.
    queues: str

    @property
    def can_join(self) -> bool:
        """True if this executor continues the flow, as is usual."""
        return self.claim_by is not None


FlowCall = RecordCall | ContinueCall


def commit_flows(groups: PreparedPool, calls: Sequence[FlowCall]) -> list[Any]:
    """`calls` can join and have one executor. Returns ALONE for a call whose row does not match, or if nothing was
    committed."""
    # Rows are locked in this order.
    order = sorted(range(len(calls)), key=lambda number: calls[number].claim.where)
    continued = [number for number in order if isinstance(calls[number], ContinueCall)]
    recorded = [number for number in order if isinstance(calls[number], RecordCall)]
    parts = [*_continues(calls, continued), *_records(calls, recorded)]
    answers: list[Any] = [ALONE] * len(calls)
    try:
        results = groups.fetch_groups([(statement, columns) for statement, _, columns in parts])
    except (DatabaseBusy, DatabaseRefused):
        return answers
    for (_, numbers, _), rows in zip(parts, results, strict=True):
        for row in rows:
            number = numbers[int(row[0] or 0) - 1]
            is_record = isinstance(calls[number], RecordCall)
            answers[number] = float(row[1] or 0.0) if is_record else ContinuedFlow(int(row[1] or 0), int(row[2] or 0))
    return answers


#: A statement, the indexes of its calls, and its values.
Part = tuple[Statement, list[int], dict[str, GroupValue]]


def _records(calls: Sequence[Any], numbers: list[int]) -> list[Part]:
    return [(RECORD_CHECKPOINTS, numbers, _checkpoint_columns([calls[one] for one in numbers]))] if numbers else []


def _continues(calls: Sequence[Any], numbers: list[int]) -> list[Part]:
    """All calls of a process have the same executor, unless it has just taken a new id."""
    same = [number for number in numbers if calls[number].claim_by.executor == calls[numbers[0]].claim_by.executor]
    if not same:
        return []
    columns = _continue_columns([calls[number] for number in same])
    return [(LOCK_RUNS, same, columns), (CONTINUE_FLOWS, same, columns)]


def _continue_columns(calls: Sequence[Any]) -> dict[str, GroupValue]:
    return {
        "run_ids": [one.claim.run_id for one in calls],
        "flows": [one.claim.path for one in calls],
        "tokens": [one.claim.token for one in calls],
        "inputs": [one.its_input for one in calls],
        "states": [one.state for one in calls],
        "timeouts": [one.claim_by.timeout for one in calls],
        "policies": [one.claim_by.policy for one in calls],
        "executor": calls[0].claim_by.executor,
        "queues": calls[0].queues,
    }


def _checkpoint_columns(calls: Sequence[RecordCall]) -> dict[str, GroupValue]:
    rows = [checkpoint_row(one.write, one.state) for one in calls]
    return {
        "run_ids": [one.claim.run_id for one in calls],
        "flows": [one.claim.path for one in calls],
        "tokens": [one.claim.token for one in calls],
        "states": [one.state for one in calls],
        "errors": [None if one.write.error is None else serialise(one.write.error) for one in calls],
        **{column: [row[name] for row in rows] for column, name in _OF_ROWS.items()},
    }


_OF_ROWS = {
    "paths": "path",
    "kinds": "kind",
    "numbers": "number",
    "begun_afters": "begun_after",
    "end_orders": "end_order",
    "statuses": "status",
    "results": "result",
    "attempts": "attempts",
    "whats": "what",
    "details": "detail",
}
