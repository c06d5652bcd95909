"""Idempotency keys of steps, in portable SQL: a running step becomes the owner of its key, uses the result of another
step, or leaves `running` and waits for the owner with a ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, select, update

from rival_client.db.idempotency_tables import keys
from rival_client.db.limit_tables import tickets
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.limits.limits import rank_of
from rival_client.model.payload import Json, serialise
from rival_client.sql.grants import Grant
from rival_client.sql.history import record
from rival_client.sql.idempotency import delete_expired_keys, end_ownership, gate_of, grant_waiting, is_owned, lock_key
from rival_client.sql.limit_rows import dialect_of
from rival_client.sql.reads.idempotency_reads import is_named
from rival_client.sql.wake import suspend_run
from rival_workers.store.call_records import KeyAnswer, KeyClaim
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql.admission import arrival
from rival_workers.store.sql.guards import guard, leave_running, route_of
from rival_workers.store.sql.part import StorePart

_STEP = tuple(steps.c[name] for name in ("execution_token", "attempts", "lost", "queue", "priority", "executor_id"))
_RUN = (runs.c.workflow, runs.c.version, runs.c.priority)
#: Number of waiting tickets that each step which used the result grants.
_MORE = 2


class IdempotencySql(StorePart):
    def own_key(self, claim: Claim, wanted: KeyClaim) -> KeyAnswer | None:
        """Ask for the key of a running step. Queued: the step waits. None: stale."""
        grants: list[Grant] = []
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            step = connection.execute(select(*_STEP).where(guard(claim, "queue_running")).with_for_update()).first()
            if step is None:
                return None
            # Lock the run before the key: the run may be suspended with the step.
            its_run = select(*_RUN).where(runs.c.id == claim.run_id)
            run = connection.execute(its_run.with_for_update(key_share=True)).one()
            if step.attempts > 1 or step.lost:
                grants += self._leave_others(connection, claim, wanted)
            key = _locked(connection, wanted)
            answer = self._answer(connection, claim, wanted, key, grants)
            if answer.state == "queued":
                grants += self._wait(connection, claim, key, step, run)
        self._publish_grants(grants)
        return answer

    @property
    def _key_grace(self) -> float:
        return self.ring_grace if self.on_grants else 0.0

    def _answer(
        self, connection: Connection, claim: Claim, wanted: KeyClaim, key: Row[Any], grants: list[Grant]
    ) -> KeyAnswer:
        by = {"run_id": key.run_id, "path": key.path}
        is_kept = key.completed_at is not None and not key.is_over
        if not is_kept and not (is_owned(connection, key) and (key.run_id, key.path) != (claim.run_id, wanted.path)):
            _take(connection, claim, wanted, key)
            return KeyAnswer("owned")
        if key.fingerprint != wanted.fingerprint:
            return KeyAnswer("conflict", **by)
        if not is_kept:
            return KeyAnswer("queued", **by)
        grants += grant_waiting(connection, key.id, _MORE, self._key_grace)
        return KeyAnswer("reused", Json(serialise(key.result)), **by)

    def _leave_others(self, connection: Connection, claim: Claim, wanted: KeyClaim) -> list[Grant]:
        """Release other keys of the step: an earlier attempt may have had another key."""
        other = select(keys.c.digest).where(
            keys.c.run_id == claim.run_id, keys.c.path == wanted.path, keys.c.expires_at.is_(None)
        )
        if set(connection.scalars(other)) <= {wanted.name.digest}:
            return []
        return end_ownership(connection, claim.run_id, {wanted.path: None}, self._key_grace)

    def _wait(self, connection: Connection, claim: Claim, key: Row[Any], step: Row[Any], run: Any) -> Sequence[Grant]:
        waits = {"attempts": steps.c.attempts - 1, "due_at": None, "ring_at": steps.c.deadline_at, "rings": 0}
        left, slots = leave_running(
            connection, claim, "queue_running", statuses.WAITING, waits, steps.c.execution_token
        )
        assert left is not None, "the step's row is locked"
        stopped = suspend_run(connection, claim.run_id, claim.path)
        waits_for = {"idempotency_key": key.key, "owner": f"{key.run_id}/{key.path}"}
        detail = {**waits_for, "attempts": step.attempts - 1, "run": stopped}
        record(connection, claim.run_id, claim.path, entries.QUEUED, by=step.executor_id, **detail)
        gate, route = gate_of(key.id), route_of(step, run.priority or 0)
        base = arrival(connection, gate)
        ticket = {
            "run_id": claim.run_id,
            "path": claim.path,
            "token": left.execution_token,
            "gate": gate,
            "base": base,
            "rank": rank_of(base, route.level),
            "workflow": run.workflow,
            "version": run.version,
            "attempt": step.attempts,
            "lost": step.lost,
            "queue": route.queue,
            "level": route.level,
            "created_at": now(),
        }
        connection.execute(dialect_of(connection).insert(tickets).values(ticket))
        return self._leave(connection, slots)

    def delete_expired_keys(self, limit: int) -> int:
        with self.database.transaction() as connection:
            return delete_expired_keys(connection, limit)


def _locked(connection: Connection, wanted: KeyClaim) -> Row[Any]:
    """Lock the row of the key; insert it if it does not exist. A row that is deleted in between is inserted again."""
    new = {**asdict(wanted.name), "digest": wanted.name.digest, "ttl": wanted.ttl, "created_at": now()}
    insert = dialect_of(connection).insert(keys).values(**new, expires_at=now()).on_conflict_do_nothing()
    while True:
        connection.execute(insert)
        row = lock_key(connection, is_named(wanted.name))
        if row is not None:
            return row


def _take(connection: Connection, claim: Claim, wanted: KeyClaim, key: Row[Any]) -> None:
    owner = {"run_id": claim.run_id, "path": wanted.path, "holder": claim.path, "fingerprint": wanted.fingerprint}
    open_again = {"result": None, "completed_at": None, "expires_at": None, "ttl": wanted.ttl}
    since = {} if key.run_id == claim.run_id else {"created_at": now()}
    connection.execute(update(keys).where(keys.c.id == key.id).values(**owner, **open_again, **since))
