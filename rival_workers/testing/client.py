"""The clients of a lab: real ones, but a wait for a run brings the run to its end, and its timeout is virtual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rival_client.api.async_client import AsyncRival
from rival_client.api.client import Rival
from rival_client.broker.wait_schedule import DEFAULT_POLL_INTERVAL, DEFAULT_TIMEOUT
from rival_client.db.tables import RUN_TERMINAL
from rival_client.errors import WaitTimeout
from rival_client.model import arguments
from rival_client.model.inputs import InputValidator, named_run
from rival_client.model.records import RunResult
from rival_workers.testing.world import World

#: Goes on until the run has ended, for so many seconds of the lab's time at most; whether it has.
Wait = Callable[[str, float | None], bool]


class LabRival(Rival):
    def __init__(self, world: World, wait: Wait, adopt: Callable[[str], None]) -> None:
        super().__init__(settings=world.settings, database=world.store.database, doorbell=world.mailbox)
        self._wait_for, self._adopt = wait, adopt

    def _validator(self, workflow: str) -> InputValidator:
        self._adopt(workflow)
        return super()._validator(workflow)

    def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        workflow, run_id = named_run(workflow, run_id)
        timeout = arguments.timeout(timeout)
        name, _ = self._status(workflow, run_id)
        if not self._wait_for(run_id, timeout):
            raise WaitTimeout(name, run_id, timeout or 0.0, self._status(name, run_id)[1])
        return self.result(run_id)

    def has_ended(self, run_id: str) -> bool:
        """Also when retention has let it go."""
        found = self._read_status(run_id)
        return found is None or found[1] in RUN_TERMINAL


class LabAsyncRival(AsyncRival):
    """Nothing is really waited for, so nothing needs a thread."""

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    async def wait(
        self,
        workflow: str | None = None,
        run_id: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
    ) -> RunResult:
        return self._rival.wait(workflow, run_id, timeout, poll_interval)
