"""Limits of the fleet: the part of both clients that lists them, shows their keys and queues, and changes a maximum."""

from __future__ import annotations

from sqlalchemy import Connection

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, arguments
from rival_client.model.limits.limit_records import LimitDetail, LimitRecord
from rival_client.model.limits.limits import MAX_LIMIT
from rival_client.model.limits.singletons import SUFFIX
from rival_client.sql.limit_records import list_limits, read_limit, reset_limit, set_limit


class LimitOperations(ClientBase):
    def limits(self) -> list[LimitRecord]:
        """All limits, by name."""
        with self.database.snapshot() as connection:
            return list_limits(connection)

    def limit(self, name: str, *, key: str | None = None, first: int = 20) -> LimitDetail:
        """Returns the keys of the limit and what waits for it, the first of each; of one key, or of all."""
        name, key = arguments.name("name", name), arguments.optional(arguments.name, "key", key)
        first = amounts.limit(first, "first")
        with self.database.snapshot() as connection:
            return read_limit(connection, name, key, first)

    def set_limit(self, name: str, max: int, *, by: str = "client") -> LimitRecord:
        """Change the maximum of a limit at once, in the whole fleet, until `reset_limit`. More: what waits starts.
        Fewer: what runs ends first. 0: nothing starts, and what waits stays, until it is raised."""
        name, by = arguments.name("name", name), arguments.name("by", by)
        if name.endswith(SUFFIX):
            raise InvalidArgument("name", "at most one run with a singleton key runs: this limit cannot be changed.")
        max = amounts.whole("max", max, 0, MAX_LIMIT)

        def change(connection: Connection) -> LimitRecord:
            return set_limit(connection, name, max, by)

        return self.database.transact(change)

    def reset_limit(self, name: str) -> LimitRecord:
        """The maximum of the definition applies again."""
        name = arguments.name("name", name)
        return self.database.transact(lambda connection: reset_limit(connection, name))


class AsyncLimitOperations(AsyncClientBase):
    limits = awaitable(LimitOperations.limits)
    limit = awaitable(LimitOperations.limit)
    set_limit = awaitable(LimitOperations.set_limit)
    reset_limit = awaitable(LimitOperations.reset_limit)
