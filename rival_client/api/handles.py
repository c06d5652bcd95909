"""Handles of one run, such as `run` returns. A handle has the run's id and passes each call on to the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT
from rival_client.errors import RivalError
from rival_client.model.records import RunResult, RunState
from rival_client.model.run_entries import HistoryEntry, LogEntry

if TYPE_CHECKING:
    from rival_client.api.async_client import AsyncRival
    from rival_client.api.client import Rival

C = TypeVar("C")
StartedStatus = Literal["started", "running", "skipped", "gathered", "queued"]


class RunHandle:
    """One run by its id."""

    instead_of: str | None = None

    def __init__(self, rival: Rival | None, run_id: str) -> None:
        self._client, self.run_id = rival, run_id

    @property
    def _rival(self) -> Rival:
        return _required(self._client, self.run_id, self.instead_of)

    def wait(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> RunResult:
        """Block until the run has ended; how it ended. WaitTimeout after `timeout` seconds (None: never)."""
        return self._rival.wait(run_id=self.run_id, timeout=timeout, poll_interval=poll_interval)

    def get(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> Any:
        """Block until the run has ended; its result. RunFailed or RunCancelled when there is none."""
        return self.wait(timeout, poll_interval).unwrap()

    def result(self) -> RunResult:
        """How the run ended; RunNotEnded when it has not."""
        return self._rival.result(self.run_id)

    def state(self) -> RunState:
        """The run and its steps as they are now."""
        return self._rival.state(self.run_id)

    def history(self) -> list[HistoryEntry]:
        return self._rival.history(self.run_id)

    def logs(self) -> list[LogEntry]:
        """What its steps have logged, the oldest first: the first thousand entries."""
        return self._rival.logs(self.run_id)

    def cancel(self, *, by: str = "client") -> bool:
        """Cancel the run. False when it had ended already."""
        return self._rival.cancel(self.run_id, by=by)


class AsyncRunHandle:
    """The same, awaitable."""

    instead_of: str | None = None

    def __init__(self, rival: AsyncRival | None, run_id: str) -> None:
        self._client, self.run_id = rival, run_id

    @property
    def _rival(self) -> AsyncRival:
        return _required(self._client, self.run_id, self.instead_of)

    async def wait(
        self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL
    ) -> RunResult:
        return await self._rival.wait(run_id=self.run_id, timeout=timeout, poll_interval=poll_interval)

    async def get(self, timeout: float | None = DEFAULT_TIMEOUT, poll_interval: float = DEFAULT_POLL_INTERVAL) -> Any:
        return (await self.wait(timeout, poll_interval)).unwrap()

    async def result(self) -> RunResult:
        return await self._rival.result(self.run_id)

    async def state(self) -> RunState:
        return await self._rival.state(self.run_id)

    async def history(self) -> list[HistoryEntry]:
        return await self._rival.history(self.run_id)

    async def logs(self) -> list[LogEntry]:
        return await self._rival.logs(self.run_id)

    async def cancel(self, *, by: str = "client") -> bool:
        return await self._rival.cancel(self.run_id, by=by)


def _required(client: C | None, run_id: str, instead_of: str | None) -> C:
    if instead_of is not None:
        why = f"run {instead_of!r} has the place of its singleton: wait for that one"
        raise RivalError(f"This start was skipped, so its run {run_id!r} does not exist: {why}.")
    if client is None:
        raise RivalError(f"This handle of run {run_id!r} has no client: use the one that `run` has returned.")
    return client


class _HowItStarted:
    """`status` is what `run` has found: "started"; "running" when the run had been started before, or has the
    singleton place; "gathered" when the start became part of a run that has not begun; "queued" when it waits for
    another run with its singleton key; "skipped" when the singleton place is taken: then this run does not exist, and
    `instead_of` names the one that has the place. It does not change; `state()` has the run's status.
    """

    run_id: str
    status: StartedStatus
    instead_of: str | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _HowItStarted):
            return NotImplemented
        return (self.run_id, self.status) == (other.run_id, other.status)

    def __hash__(self) -> int:
        return hash((self.run_id, self.status))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(run_id={self.run_id!r}, status={self.status!r})"


class Started(_HowItStarted, RunHandle):
    """What `run` gives back at once: `rival.run("orders", {...}).wait()`."""

    def __init__(
        self, run_id: str, status: StartedStatus, rival: Rival | None = None, *, instead_of: str | None = None
    ) -> None:
        super().__init__(rival, run_id)
        self.status, self.instead_of = status, instead_of


class AsyncStarted(_HowItStarted, AsyncRunHandle):
    """The same for `AsyncRival`: `await (await rival.run("orders", {...})).wait()`."""

    def __init__(
        self, run_id: str, status: StartedStatus, rival: AsyncRival | None = None, *, instead_of: str | None = None
    ) -> None:
        super().__init__(rival, run_id)
        self.status, self.instead_of = status, instead_of
