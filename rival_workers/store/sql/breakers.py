"""Circuit breakers, in portable SQL: whether an attempt may call its function, and how its outcome changes the breaker.

The breaker's row names the attempt that probes. It counts as the probe only while its step runs with its token, so a
probe that was taken over, cancelled or rewound makes room for another one, and its late outcome changes nothing.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select

from rival_client.db.failure_tables import breaker_failures, breakers
from rival_client.db.run_tables import steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.policies.breakers import Breaker, BreakerState
from rival_client.sql.breakers import NO_PROBE, change_breaker, ensure_breaker, insert_into, lock_breaker
from rival_client.sql.history import record
from rival_workers.store.call_records import BreakerAnswer
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql.part import StorePart

#: Number of buckets into which the failures of a window are counted.
BUCKETS = 10


class BreakersSql(StorePart):
    def ask_breaker(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerAnswer:
        """Ask before the function is called. A closed breaker costs one read by primary key."""
        with self.database.autocommit() as connection:
            row = connection.execute(select(breakers.c.state).where(breakers.c.name == breaker.name)).first()
        if row is None or row.state == "closed":
            return BreakerAnswer(True)
        return self.database.transact(lambda connection: self._ask(connection, breaker, claim, executor))

    def _ask(self, connection: Connection, breaker: Breaker, claim: Claim, executor: str) -> BreakerAnswer:
        # The row lock ensures that one attempt in the whole fleet probes.
        row = lock_breaker(connection, breaker.name)
        if row is None or row.state == "closed":
            return BreakerAnswer(True)
        refused = _refused(connection, breaker, row)
        if refused is not None:
            return refused
        probe = {"probe_run": claim.run_id, "probe_path": claim.path, "probe_token": claim.token}
        change_breaker(connection, breaker.name, "half_open", executor, **probe)
        if row.state != "half_open":
            _moved(connection, breaker, claim, "half_open", executor)
        return BreakerAnswer(True, probes=True)

    def breaker_succeeded(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None:
        """Record that a probe succeeded. Returns the new state if it changed."""
        return self.database.transact(lambda connection: _succeeded(connection, breaker, claim, executor))

    def breaker_failed(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerState | None:
        """Record an error that counts. Returns the new state if it changed."""
        return self.database.transact(lambda connection: _failed(connection, breaker, claim, executor))


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
    if not _is_probe(row, claim):
        return None
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
    if not (_is_probe(row, claim) or (row.state == "closed" and counted >= breaker.failures)):
        return None
    until = after(breaker.open_for(row.opened))
    change_breaker(connection, breaker.name, "open", executor, until=until, opened=row.opened + 1, **NO_PROBE)
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
