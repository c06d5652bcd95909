"""The settings of a worker, from arguments or the environment. No other module of the workers reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from rival_client.model.starts.queues import ServedQueues, split_queues
from rival_client.model.timers import NEAR
from rival_client.setting_rules import Flag, OneOf, QueueNames, Seconds, Whole, Words, setting
from rival_client.settings import Settings, masked
from rival_client.url_rules import DATABASE_URL, PAGE_URL
from rival_workers.page_links import PAGE_LINKS

__all__ = ["WorkerSettings", "masked", "minimal_environment"]

#: Variables that a command gets. Database URLs and passwords are not among them.
_HARMLESS = ("PATH", "HOME", "LANG")


def minimal_environment() -> dict[str, str]:
    """The environment of a command that a step starts."""
    return {name: os.environ[name] for name in _HARMLESS if name in os.environ}


_DAY = 86_400.0
_LEASE = Seconds(2.0, _DAY, "; with less, a busy machine loses its own leases")
_LOG_FORMATS = ("console", "json")
#: Characters of a list of paths or words.
_LIST = 32_000


@dataclass(frozen=True)
class WorkerSettings(Settings):
    #: The queues that this worker serves, separated by commas; "default" is RIVAL_QUEUE. None given: that one alone.
    queues: str = setting("", QueueNames())
    #: Seconds without a heartbeat after which an executor's attempts are taken over.
    lease: float = setting(15.0, _LEASE)
    #: Seconds for which one message may continue with the next steps in place; 0: one message per attempt.
    continuation_budget: float = setting(1.0, Seconds(0, _DAY))
    #: Timers within this many seconds have a countdown in a process; later ones wait in the table.
    near: float = setting(NEAR, Seconds(0, _DAY))
    #: Seconds between two rounds of the keeper.
    keeper_interval: float = setting(0.5, Seconds(0.001, _DAY))
    #: How often a step may lose its executor before it fails.
    max_lost: int = setting(3, Whole())
    #: Seconds for which ended runs are kept; 0: forever.
    retention: float = setting(0.0, Seconds())
    #: Seconds that running attempts have to finish on shutdown before they are handed back.
    shutdown_grace: float = setting(20.0, Seconds(0, _DAY))
    #: Seconds for which the commit of an outcome is retried during an outage of the database.
    patience: float = setting(120.0, Seconds())
    #: Files and directories with workflows, separated as in PATH.
    workflows: str = setting("", Words(_LIST, of_files=True))
    #: The point at which a test kills the process; see `rival_workers.runtime.failpoints`.
    failpoint: str = setting("", Words())
    #: Seconds without a message, although the queue has some, after which a worker's consumer counts as stalled.
    stalled_after: float = setting(60.0, Seconds(0.001))
    #: Whether `shell_step` may start commands on this worker.
    allow_shell: bool = setting(False, Flag())

    #: The format of the process log: console (text) or json (one object per line).
    log_format: str = setting("console", OneOf(_LOG_FORMATS))
    #: Further parts of names whose values are hidden in logs, separated by commas.
    redact: str = setting("", Words(_LIST))
    #: The secret by which the dashboard recognises the proxy that names users; not in the repr, which ends up in logs.
    proxy_secret: str = setting("", Words(is_secret=True), repr=False)
    #: The database that the dashboard reads, such as a replica; None: `database_url`, to which it always writes.
    dashboard_database_url: str | None = setting(None, DATABASE_URL, repr=False)
    #: Where browsers find Flower: the dashboard links its workers and attempts to it.
    flower_url: str | None = setting(None, PAGE_URL)
    #: Where browsers find the dashboard: Flower links the run of each attempt to it.
    dashboard_url: str | None = setting(None, PAGE_URL)
    #: Links from steps in the dashboard to other tools: NAME=URL, with spaces between them.
    dashboard_links: str = setting("", PAGE_LINKS)

    LOG_FORMATS = _LOG_FORMATS

    @property
    def workflow_paths(self) -> list[str]:
        return [path for path in self.workflows.split(os.pathsep) if path]

    @property
    def served(self) -> ServedQueues:
        return ServedQueues(split_queues(self.queues), self.queue)

    @property
    def store_options(self) -> dict[str, Any]:
        limits = {"ring_grace": self.ring_grace, "near": self.near, "max_payload": self.max_payload}
        return {**limits, "served": self.served}

    def environment(self) -> dict[str, str]:
        """The environment of child processes: that of this process, with these settings."""
        given = {f"RIVAL_{field.name.upper()}": getattr(self, field.name) for field in fields(self)}
        return {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}
