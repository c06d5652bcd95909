"""Circuit breakers, in portable SQL: whether an attempt may call its function, and how its outcome changes the breaker.

The breaker's row names the attempt that probes. It counts as the probe only while its step runs with its token, so a
probe that was taken over, cancelled or rewound makes room for another one, and its late outcome changes nothing.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, true

from rival_client.db.failure_tables import breaker_failures, breaker_waits, breakers
from rival_client.db.run_tables import steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.policies.breakers import Breaker, BreakerState
from rival_client.sql.breaker_waits import call_waiting, is_waited_for, remove_stale_waits, remove_wait
from rival_client.sql.breakers import NO_PROBE, change_breaker, ensure_breaker, insert_into, lock_breaker
from rival_client.sql.history import record
from rival_workers.store.call_records import BreakerAnswer
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql.part import StorePart

#: Number of buckets into which the failures of a window are counted.
BUCKETS = 10
#: Number of breakers, and of waiting steps of each, that the sweep examines.
_HEAD = 100


class BreakersSql(StorePart):
    def ask_breaker(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerAnswer:
        """Ask before the function is called. A closed breaker costs one read by primary key."""
        state = select(breakers.c.state).where(breakers.c.name == breaker.name).scalar_subquery()
        with self.database.autocommit() as connection:
            row = connection.execute(select(state.label("state"), is_waited_for(breaker.name).label("waited"))).one()
        if row.state in (None, "closed") and not row.waited:
            return BreakerAnswer(True)
        return self.database.transact(lambda connection: self._ask(connection, breaker, claim, executor))

    def _ask(self, connection: Connection, breaker: Breaker, claim: Claim, executor: str) -> BreakerAnswer:
        # The row lock ensures that one attempt in the whole fleet probes.
        row = lock_breaker(connection, breaker.name)
        remove_wait(connection, claim.run_id, claim.path)
        if row is None or row.state == "closed":
            return BreakerAnswer(True, is_waited_for=True)
        refused = _refused(connection, breaker, row)
        if refused is not None:
            return refused
        probe = {"probe_run": claim.run_id, "probe_path": claim.path, "probe_token": claim.token}
        change_breaker(connection, breaker.name, "half_open", executor, **probe)
        if row.state != "half_open":
            _moved(connection, breaker, claim, "half_open", executor)
        return BreakerAnswer(True, probes=True)

    def breaker_succeeded(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None:
        """Record that a probe succeeded, or a step for whose breaker others wait: these are called. Returns the new
        state if it changed."""
        return self.database.transact(lambda connection: _succeeded(connection, breaker, claim, executor))

    def breaker_failed(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None:
        """Record an error that counts. Returns the new state if it changed."""
        return self.database.transact(lambda connection: _failed(connection, breaker, claim, executor))

    def sweep_breakers(self) -> None:
        """Call one step more of each breaker that would let it go: the one that should have called it may have failed,
        or its run may have been cancelled."""
        for name in self._waited_breakers():
            with self.database.transaction() as connection:
                # First, as a step that asks: it locks the breaker, and then its own row in the queue.
                row = lock_breaker(connection, name)
                remove_stale_waits(connection, name, _HEAD)
                if row is None or _lets_go(connection, row):
                    call_waiting(connection, name, 1)

    def _waited_breakers(self) -> list[str]:
        """Each name is found with one index lookup."""
        found: list[str] = []
        with self.database.autocommit() as connection:
            while len(found) < _HEAD:
                later = breaker_waits.c.name > found[-1] if found else true()
                name = connection.scalar(select(func.min(breaker_waits.c.name)).where(later))
                if name is None:
                    break
                found.append(name)
        return found


def _lets_go(connection: Connection, row: Any) -> bool:
    """Whether a step that asks now is called."""
    if row.state == "open":
        moment: Any = connection.scalar(select(now()))
        return row.until is not None and row.until <= moment
    return row.state == "closed" or not _probes(connection, row)


def _refused(connection: Connection, breaker: Breaker, row: Any) -> BreakerAnswer | None:
    """The refusal, or None if the attempt may probe."""
    moment = connection.scalar(select(now()))
    if row.state == "open" and (row.until is None or row.until > moment):
        return BreakerAnswer(False, seconds=_left(row.until, moment))
    if row.state == "half_open" and _probes(connection, row):
        return BreakerAnswer(False, seconds=breaker.reset / 4)
    return None


def _succeeded(connection: Connection, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None:
    row = lock_breaker(connection, breaker.name)
    if row is None or row.state == "closed":
        call_waiting(connection, breaker.name, 2)
        return None
    if not _is_probe(row, claim):
        return None
    call_waiting(connection, breaker.name, 1)
    if row.successes + 1 < breaker.successes:
        free = {**NO_PROBE, "successes": row.successes + 1}
        change_breaker(connection, breaker.name, "half_open", executor, **free)
        return None
    change_breaker(connection, breaker.name, "closed", executor, until=None, opened=0, **NO_PROBE)
    return _moved(connection, breaker, claim, "closed", executor)


def _failed(connection: Connection, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None:
    ensure_breaker(connection, breaker.name, executor)
    counted = _count(connection, breaker, executor)
    probe = select(breakers.c.probe_run).where(breakers.c.name == breaker.name)
    if counted < breaker.failures and connection.scalar(probe) is None:
        return None
    row = lock_breaker(connection, breaker.name)
    if row is None:
        return None  # an operator has reset it meanwhile
    if not (_is_probe(row, claim) or (row.state == "closed" and counted >= breaker.failures)):
        return None
    seconds = breaker.open_for(row.opened)
    values = {"until": after(seconds), "opened": row.opened + 1, **NO_PROBE}
    change_breaker(connection, breaker.name, "open", executor, **values)
    call_waiting(connection, breaker.name, 1, seconds)
    return _moved(connection, breaker, claim, "open", executor)


def _count(connection: Connection, breaker: Breaker, executor: str) -> int:
    """Count a failure. Returns the number of failures within the window."""
    moment: dt.datetime = connection.scalar(select(now())) or dt.datetime.now(dt.UTC)
    width = breaker.window / BUCKETS
    bucket = dt.datetime.fromtimestamp(moment.timestamp() // width * width, dt.UTC)
    begin = moment - dt.timedelta(seconds=breaker.window)
    own = (breaker_failures.c.name == breaker.name, breaker_failures.c.executor_id == executor)
    connection.execute(delete(breaker_failures).where(*own, breaker_failures.c.bucket < begin))
    key = {"name": breaker.name, "bucket": bucket, "executor_id": executor}
    one, more = insert_into(connection, breaker_failures).values(**key, failures=1), breaker_failures.c.failures + 1
    connection.execute(one.on_conflict_do_update(index_elements=list(key), set_={"failures": more}))
    within = (breaker_failures.c.name == breaker.name, breaker_failures.c.bucket >= begin)
    return connection.scalar(select(func.sum(breaker_failures.c.failures)).where(*within)) or 0


def _is_probe(row: Any, claim: Claim) -> bool:
    return row is not None and (row.probe_run, row.probe_path, row.probe_token) == (
        claim.run_id,
        claim.path,
        claim.token,
    )


def _probes(connection: Connection, row: Any) -> bool:
    """True if the probing attempt still runs."""
    if row.probe_run is None:
        return False
    running = and_(
        steps.c.run_id == row.probe_run,
        steps.c.path == row.probe_path,
        steps.c.execution_token == row.probe_token,
        steps.c.status == statuses.RUNNING,
    )
    return connection.scalar(select(steps.c.path).where(running)) is not None


def _left(until: dt.datetime | None, moment: Any) -> float | None:
    return None if until is None else max(0.0, (until - moment).total_seconds())


def _moved(connection: Connection, breaker: Breaker, claim: Claim, state: BreakerState, executor: str) -> BreakerState:
    record(connection, claim.run_id, claim.path, entries.BREAKER, by=executor, name=breaker.name, state=state)
    return state
