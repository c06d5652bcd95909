"""`rival worker`: starts worker processes, restarts those that die, and stops them together."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from typing import Any

import click

from rival_client.db.database import Database
from rival_client.errors import ConfigurationError, DatabaseError
from rival_client.settings import masked
from rival_workers.cli.connection import resolved
from rival_workers.cli.display.output import json_option, print_json_line
from rival_workers.cli.load_check import loaded_workflows
from rival_workers.cli.options.fleet_options import (
    FleetOptions,
    interrupt_on,
    with_fleet_options,
    with_workflows,
    workflows_option,
)
from rival_workers.settings import WorkerSettings
from rival_workers.store import migrations

log = logging.getLogger("rival.worker")


@click.command()
@workflows_option
@with_fleet_options(processes=os.cpu_count() or 1, events=False, reload=False)
@json_option
def worker(paths: Sequence[str], as_json: bool, **options: Any) -> int:
    """Join the fleet: run steps of the given workflows until Ctrl-C or SIGTERM."""
    interrupt_on(signal.SIGINT)
    fleet_options = FleetOptions(**options)
    settings = fleet_options.prepared(with_workflows(resolved(WorkerSettings), paths), as_json)
    if not settings.workflow_paths:
        raise ConfigurationError("No workflows are given. Use `rival worker --workflows PATH` or set RIVAL_WORKFLOWS.")
    if not settings.broker_url:
        raise ConfigurationError("No broker is given. Set RIVAL_BROKER_URL (redis://…).")
    check_schema(settings)
    names = list(loaded_workflows(settings.workflow_paths, settings.environment()))
    if as_json:
        queues = list(settings.served.in_broker)
        print_json_line(
            {"processes": fleet_options.processes, "pool": fleet_options.pool, "queues": queues, "workflows": names}
        )
    size = f"{fleet_options.processes} processes of {fleet_options.slots} ({fleet_options.pool})"
    log.info("%s on %s: %s", size, masked(settings.database_url), ", ".join(names))
    return fleet_options.fleet(settings).run()


def check_schema(settings: WorkerSettings) -> None:
    """Refuses a schema that is too old. An unreachable database is not an error: the workers wait for it."""
    database = Database(settings.require_database())
    try:
        found, wanted = migrations.version(database), migrations.head()
    except DatabaseError as error:
        if isinstance(error, ConfigurationError):
            raise
        log.warning("%s", error)
        return
    finally:
        database.dispose()
    if found is None or found < wanted:
        raise ConfigurationError(
            f"The database's schema is at {found or 'nothing'}, this worker needs {wanted}. Run `rival db upgrade` "
            "(it is safe while workers run)."
        )
