"""Options of a fleet of worker processes, which `rival worker` and `rival dev` share."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from rival_client.model.starts.queues import split_queues
from rival_client.setting_rules import QueueNames
from rival_workers.runtime.fleet import Fleet
from rival_workers.runtime.logs.process_log import start_logging
from rival_workers.settings import WorkerSettings

F = TypeVar("F", bound=Callable[..., Any])

workflows_option = click.option(
    "--workflows",
    "-w",
    "paths",
    multiple=True,
    metavar="PATH",
    help="A workflow file, or a directory of them; repeatable. Default: RIVAL_WORKFLOWS.",
)
_LOG_LEVELS = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)


#: Steps at a time by pool, unless `--concurrency` is given. Threads that run quick steps share their commits: with 16
#: of them a step costs two thirds of the processor time that it costs with 8. A slot of prefork is a process.
CONCURRENCY = {"threads": 16, "prefork": 8, "solo": 1}


@dataclass(frozen=True)
class FleetOptions:
    """The options of the worker processes, without their workflows and servers."""

    processes: int
    concurrency: int | None
    pool: str
    loglevel: str
    events: bool
    reload: bool
    log_format: str | None = None
    queues: str | None = None

    @property
    def slots(self) -> int:
        """Steps at a time, per process."""
        return self.concurrency or CONCURRENCY[self.pool]

    def command(self, index: int) -> list[str]:
        name = f"rival-{os.getpid()}-{index}@{socket.gethostname()}"
        command = [sys.executable, "-m", "rival_workers.runtime.celery.worker", "--name", name]
        command += ["--pool", self.pool, "--concurrency", str(self.slots), "--loglevel", self.loglevel]
        return [*command, *(["--events"] if self.events else []), *(["--reload"] if self.reload else [])]

    def prepared(self, settings: WorkerSettings, as_json: bool) -> WorkerSettings:
        """The settings with the options of the command line; starts logging with them."""
        if as_json and self.log_format not in (None, "json"):
            raise click.UsageError("with --json the log is JSON, too: leave --log-format out")
        log_format = self.log_format or ("json" if as_json else settings.log_format)
        settings = settings.with_(log_format=log_format, queues=self.queues or settings.queues)
        start_logging(self.loglevel, settings.log_format)
        return settings

    def fleet(self, settings: WorkerSettings) -> Fleet:
        return Fleet(self.processes, self.command, settings.shutdown_grace, settings.environment())


def with_fleet_options(processes: int, events: bool, reload: bool) -> Callable[[F], F]:
    """The options of every command that starts a fleet."""

    def decorate(command: F) -> F:
        for option in reversed(_options(processes, events, reload)):
            command = option(command)
        return command

    return decorate


def queue_names(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """None: not given. Without a name the worker would serve another queue than the one that was meant."""
    rule = QueueNames()
    if value is not None and not (rule.allows(value) and split_queues(value)):
        raise click.BadParameter(f"{value!r} is not {rule.expected}.")
    return value


def _options(processes: int, events: bool, reload: bool) -> list[Callable[[Any], Any]]:
    number = click.IntRange(min=1)
    return [
        click.option("--processes", "-p", type=number, default=processes, help="Worker processes."),
        click.option(
            "--concurrency",
            "-c",
            type=number,
            show_default=", ".join(f"{slots} ({pool})" for pool, slots in CONCURRENCY.items()),
            help="Steps at a time, per process.",
        ),
        click.option(
            "--queues",
            "-Q",
            metavar="NAMES",
            callback=queue_names,
            help="The queues it serves, separated by commas. Default: RIVAL_QUEUES.",
        ),
        click.option(
            "--pool", type=click.Choice(list(CONCURRENCY)), default="threads", help="How a process runs several steps."
        ),
        click.option("--loglevel", default="INFO", type=_LOG_LEVELS, help="The lowest level of the worker's log."),
        click.option(
            "--log-format",
            type=click.Choice(WorkerSettings.LOG_FORMATS),
            show_default="console",
            help="For people, or one JSON object per line. Default: RIVAL_LOG_FORMAT.",
        ),
        click.option("--events/--no-events", default=events, help="Send Celery's task events, for Flower."),
        click.option("--reload/--no-reload", default=reload, help="Reload workflow files when they change."),
    ]


def interrupt_on(*numbers: signal.Signals) -> None:
    """Signals that end a command before its fleet runs. A shell without job control starts background jobs with SIGINT
    ignored, and they would go on while Ctrl-C ends what is beside them."""
    for number in numbers:
        signal.signal(number, signal.default_int_handler)


def with_workflows(settings: WorkerSettings, paths: Sequence[str]) -> WorkerSettings:
    return settings.with_(workflows=os.pathsep.join(paths)) if paths else settings
