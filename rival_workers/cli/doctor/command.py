"""`rival doctor`: checks everything that Rival needs and prints what to do about problems. Changes nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import click
from rich.text import Text

from rival_client.errors import ConfigurationError
from rival_client.settings import Settings
from rival_workers.cli.connection import resolved
from rival_workers.cli.display.formats import printable, status_text
from rival_workers.cli.display.output import console, json_option, print_json
from rival_workers.cli.doctor.broker_checks import check_broker
from rival_workers.cli.doctor.checks import Check, check_as_json, check_settings
from rival_workers.cli.doctor.database_checks import check_database
from rival_workers.settings import WorkerSettings


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check database, schema, broker, workers, clocks and settings. Exit code 1 when something is broken."""
    found = list(_examined())
    healthy = all(check.status != "fail" for check in found)
    if as_json:
        _print_json(found, healthy)
    else:
        _print(found)
    return 0 if healthy else 1


def _examined() -> Iterator[Check]:
    settings = yield from _settings()
    if settings is not None:
        yield from check_broker(settings)
        yield from check_database(settings)


def _settings() -> Generator[Check, None, WorkerSettings | None]:
    """Yields the checks of the settings. Where only workers would refuse them, returns the settings of producers."""
    try:
        settings = resolved(WorkerSettings)
    except ConfigurationError as error:
        yield Check("settings", "fail", str(error), "correct it: workers do not start with it")
        return _settings_of_producers()
    yield from check_settings(settings)
    return settings


def _settings_of_producers() -> WorkerSettings | None:
    try:
        known = resolved(Settings)
    except ConfigurationError:
        return None
    return WorkerSettings(database_url=known.database_url, broker_url=known.broker_url, queue=known.queue)


def _print_json(found: list[Check], healthy: bool) -> None:
    print_json({"healthy": healthy, "checks": [check_as_json(check) for check in found]})


def _print(found: list[Check]) -> None:
    out = console()
    for check in found:
        out.print(status_text(f"{check.status:4}"), Text(f"{check.name:13} {printable(check.message)}"))
        if check.advice:
            out.print(Text(f"{'':19}→ {check.advice}", style="bold"))
