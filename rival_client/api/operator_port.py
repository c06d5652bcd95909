"""The operators' verbs that need to read a plan: done by `rival_workers`, which is found by name and only when needed.
A producer that has not installed it can start, wait and cancel, pause and resume.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

from rival_client.broker.doorbell import Doorbell
from rival_client.db.database import Database
from rival_client.errors import ConfigurationError
from rival_client.model.records import Reopened
from rival_client.settings import Settings


class Operator(Protocol):
    def retry(self, run_id: str, by: str, dry_run: bool = False) -> Reopened: ...
    def rewind(self, run_id: str, step: str, by: str, dry_run: bool = False) -> Reopened: ...
    def skip(self, run_id: str, step: str, reason: str, by: str, dry_run: bool = False) -> None: ...
    def set_result(self, run_id: str, step: str, result: Any, reason: str, by: str, dry_run: bool = False) -> None: ...


def open_operator(database: Database, doorbell: Doorbell, settings: Settings) -> Operator:
    try:
        module = importlib.import_module("rival_workers.operations")
    except ImportError as error:
        raise ConfigurationError(
            f"retry, rewind, skip and set_result need the workers' part of Rival, and {error.name!r} is missing. "
            "Install rival-workflows[workers] here, or use the `rival` command where the workers are."
        ) from error
    return cast(Operator, module.Operator(database, doorbell, settings))
