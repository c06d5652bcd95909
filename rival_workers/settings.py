"""What a worker can set, by argument or by environment. The only module of the workers that reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from rival_client.errors import ConfigurationError
from rival_client.settings import Settings, masked

__all__ = ["WorkerSettings", "masked", "minimal_environment"]

#: What a command needs to find its way about; database URLs and passwords are not among it.
_HARMLESS = ("PATH", "HOME", "LANG")


def minimal_environment() -> dict[str, str]:
    """What a command that a step starts is given of this process's environment."""
    return {name: os.environ[name] for name in _HARMLESS if name in os.environ}


@dataclass(frozen=True)
class WorkerSettings(Settings):
    #: Seconds without a heartbeat after which an executor's attempts are taken over.
    lease: float = 15.0
    #: Wall seconds for which one message may go on with the next steps in place; 0: every attempt is a message.
    continuation_budget: float = 1.0
    #: Timers nearer than this ride a Celery countdown; farther ones wait in the table.
    near: float = 30.0
    #: Seconds between the keeper's looks.
    keeper_interval: float = 0.5
    #: How often a step may lose its executor before it fails.
    max_lost: int = 3
    #: Seconds for which ended runs are kept; 0: for ever.
    retention: float = 0.0
    #: Seconds that running attempts have to finish on shutdown before they are handed back.
    shutdown_grace: float = 20.0
    #: Seconds for which an outcome is kept and tried again while the database is away.
    patience: float = 120.0
    #: Files and directories with workflows, separated as in PATH.
    workflows: str = ""
    #: Where a test stops the process; see `rival_workers.runtime.failpoints`.
    failpoint: str = ""
    #: Seconds without a message, while the queue has some, after which a worker is held to be deaf.
    deaf_after: float = 60.0
    #: Whether `shell_step` may start commands on this worker.
    allow_shell: bool = False

    #: How the process log is written: console, for people, or json, one object per line.
    log_format: str = "console"
    #: Further parts of names whose values are not logged, with commas between them.
    redact: str = ""

    MIN_LEASE = 2.0
    LOG_FORMATS = ("console", "json")

    def __post_init__(self) -> None:
        if not self.lease >= self.MIN_LEASE:  # also for NaN
            raise ConfigurationError(
                f"RIVAL_LEASE={self.lease:g} is too short: below {self.MIN_LEASE:g} s a busy machine "
                "loses its own leases."
            )
        if self.log_format not in self.LOG_FORMATS:
            raise ConfigurationError(f"RIVAL_LOG_FORMAT={self.log_format!r} is neither console nor json.")

    @property
    def workflow_paths(self) -> list[str]:
        return [path for path in self.workflows.split(os.pathsep) if path]

    @property
    def store_options(self) -> dict[str, Any]:
        return {"ring_grace": self.ring_grace, "near": self.near, "max_payload": self.max_payload}

    def environment(self) -> dict[str, str]:
        """This process's environment with these settings in it: what its child processes are given."""
        given = {f"RIVAL_{field.name.upper()}": getattr(self, field.name) for field in fields(self)}
        return {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}
