"""What a worker can set, by argument or by environment. The only module of the workers that reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from rival_client.setting_rules import Flag, OneOf, Seconds, Whole, Words, setting
from rival_client.settings import Settings, masked

__all__ = ["WorkerSettings", "masked", "minimal_environment"]

#: What a command needs to find its way about; database URLs and passwords are not among it.
_HARMLESS = ("PATH", "HOME", "LANG")


def minimal_environment() -> dict[str, str]:
    """What a command that a step starts is given of this process's environment."""
    return {name: os.environ[name] for name in _HARMLESS if name in os.environ}


_DAY = 86_400.0
_LEASE = Seconds(2.0, _DAY, "; with less, a busy machine loses its own leases")
_LOG_FORMATS = ("console", "json")
#: Characters of a list of paths or words.
_LIST = 32_000


@dataclass(frozen=True)
class WorkerSettings(Settings):
    #: Seconds without a heartbeat after which an executor's attempts are taken over.
    lease: float = setting(15.0, _LEASE)
    #: Wall seconds for which one message may go on with the next steps in place; 0: every attempt is a message.
    continuation_budget: float = setting(1.0, Seconds(0, _DAY))
    #: Timers nearer than this ride a Celery countdown; farther ones wait in the table.
    near: float = setting(30.0, Seconds(0, _DAY))
    #: Seconds between the keeper's looks.
    keeper_interval: float = setting(0.5, Seconds(0.001, _DAY))
    #: How often a step may lose its executor before it fails.
    max_lost: int = setting(3, Whole())
    #: Seconds for which ended runs are kept; 0: for ever.
    retention: float = setting(0.0, Seconds())
    #: Seconds that running attempts have to finish on shutdown before they are handed back.
    shutdown_grace: float = setting(20.0, Seconds(0, _DAY))
    #: Seconds for which an outcome is kept and tried again while the database is away.
    patience: float = setting(120.0, Seconds())
    #: Files and directories with workflows, separated as in PATH.
    workflows: str = setting("", Words(_LIST, of_files=True))
    #: Where a test stops the process; see `rival_workers.runtime.failpoints`.
    failpoint: str = setting("", Words())
    #: Seconds without a message, while the queue has some, after which a worker is held to be deaf.
    stalled_after: float = setting(60.0, Seconds(0.001))
    #: Whether `shell_step` may start commands on this worker.
    allow_shell: bool = setting(False, Flag())

    #: How the process log is written: console, for people, or json, one object per line.
    log_format: str = setting("console", OneOf(_LOG_FORMATS))
    #: Further parts of names whose values are not logged, with commas between them.
    redact: str = setting("", Words(_LIST))

    LOG_FORMATS = _LOG_FORMATS

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
