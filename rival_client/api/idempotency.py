"""Idempotency keys of steps for operators: the part of both clients that reads and drops them."""

from __future__ import annotations

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, arguments
from rival_client.model.limits.idempotency import MAX_KEY
from rival_client.model.limits.idempotency_records import IdempotencyRecord, KeyName
from rival_client.sql.idempotency import drop_key
from rival_client.sql.reads.idempotency_reads import is_named, keys_of_workflow, list_keys


class IdempotencyOperations(ClientBase):
    def idempotency_keys(self, *, workflow: str | None = None, limit: int = 50) -> list[IdempotencyRecord]:
        """Keys that have not expired, the newest first; of all workflows, or with `workflow` those of one alone."""
        which = None if workflow is None else keys_of_workflow(arguments.name("workflow", workflow))
        limit = amounts.limit(limit)
        with self.database.autocommit() as connection:
            return list_keys(connection, limit, which)

    def idempotency_key(
        self, key: str, *, workflow: str | None = None, step: str | None = None
    ) -> IdempotencyRecord | None:
        """The key of this step; without `step`, of the whole workflow; without `workflow`, of the fleet. None: no step
        has it, or it has expired."""
        name = _name(key, workflow, step)
        with self.database.autocommit() as connection:
            return next(iter(list_keys(connection, 1, is_named(name))), None)

    def drop_idempotency_key(
        self, key: str, *, workflow: str | None = None, step: str | None = None, by: str = "client"
    ) -> bool:
        """Remove the result, so that the next step with the key is called. False: the key has no result. NotPossible
        while a step works on it."""
        name, by = _name(key, workflow, step), arguments.name("by", by)
        granted = self.database.transact(lambda connection: drop_key(connection, name, by))
        return granted is not None


class AsyncIdempotencyOperations(AsyncClientBase):
    idempotency_keys = awaitable(IdempotencyOperations.idempotency_keys)
    idempotency_key = awaitable(IdempotencyOperations.idempotency_key)
    drop_idempotency_key = awaitable(IdempotencyOperations.drop_idempotency_key)


def _name(key: object, workflow: str | None, step: str | None) -> KeyName:
    text = arguments.text("key", key, MAX_KEY)
    if step is not None and workflow is None:
        raise InvalidArgument("step", "a step belongs to a workflow: give `workflow`, too.")
    its_workflow = None if workflow is None else arguments.name("workflow", workflow)
    return KeyName(text, its_workflow, None if step is None else arguments.step(step))
