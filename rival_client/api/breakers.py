"""Circuit breakers for operators: the part of both clients that lists, opens, closes and resets them."""

from __future__ import annotations

from sqlalchemy import Connection

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.errors import InvalidArgument, did_you_mean
from rival_client.model.checks import amounts, arguments
from rival_client.model.policies.breakers import BreakerRecord
from rival_client.sql import breakers as statements


class BreakerOperations(ClientBase):
    def breakers(self) -> list[BreakerRecord]:
        """The circuit breakers that have counted a failure or were opened, by name."""
        with self.database.autocommit() as connection:
            return statements.list_breakers(connection)

    def open_breaker(self, name: str, *, seconds: float | None = None, by: str = "client", force: bool = False) -> None:
        """Stop the calls of all steps with this circuit breaker, for some seconds or until it is closed. `force`: also
        if no registered workflow and no rule of the fleet has it.
        """
        name, by, force = arguments.name("name", name), arguments.name("by", by), arguments.flag("force", force)
        until = None if seconds is None else amounts.seconds("seconds", seconds)

        def open_it(own: Connection) -> None:
            if not force and name not in (known := statements.known_breakers(own)):
                unknown = f"no registered workflow has a circuit breaker {name!r}{did_you_mean(name, known)}"
                raise InvalidArgument("name", f"{unknown}: give force for one that only runs or later workflows have.")
            statements.open_breaker(own, name, until, by)

        self.database.transact(open_it)

    def close_breaker(self, name: str, *, by: str = "client") -> bool:
        """Let the steps with this circuit breaker be called again. False: it is not open."""
        name, by = arguments.name("name", name), arguments.name("by", by)
        return self.database.transact(lambda own: statements.close_breaker(own, name, by))

    def reset_breaker(self, name: str) -> bool:
        """Close the circuit breaker and delete what it has counted. False: it does not exist."""
        name = arguments.name("name", name)
        return self.database.transact(lambda own: statements.reset_breaker(own, name))


class AsyncBreakerOperations(AsyncClientBase):
    breakers = awaitable(BreakerOperations.breakers)
    open_breaker = awaitable(BreakerOperations.open_breaker)
    close_breaker = awaitable(BreakerOperations.close_breaker)
    reset_breaker = awaitable(BreakerOperations.reset_breaker)
