"""Circuit breakers for operators: the part of both clients that lists, opens, closes and resets them."""

from __future__ import annotations

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.model.checks import amounts, arguments
from rival_client.model.policies.breakers import BreakerRecord
from rival_client.sql import breakers as statements


class BreakerOperations(ClientBase):
    def breakers(self) -> list[BreakerRecord]:
        """The circuit breakers that have counted a failure or were opened, by name."""
        with self.database.autocommit() as connection:
            return statements.list_breakers(connection)

    def open_breaker(self, name: str, *, seconds: float | None = None, by: str = "client") -> None:
        """Stop the calls of all steps with this circuit breaker, for some seconds or until it is closed."""
        name, by = arguments.name("name", name), arguments.name("by", by)
        until = None if seconds is None else amounts.seconds("seconds", seconds)
        self.database.transact(lambda own: statements.open_breaker(own, name, until, by))

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
