"""`rival demo`: an embedded stack, two worker processes, the dashboard, and runs with a retry, a timeout, a cancel, a
failure and a killed worker. Fails unless every run ends as expected, and leaves nothing running."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from rival_client.api.client import Rival
from rival_client.errors import RivalError
from rival_client.model.records import RunState
from rival_workers.cli.dashboard_launch import beside, is_installed
from rival_workers.cli.demo.expected_runs import DEMO_RUNS, DemoRun, problems
from rival_workers.cli.demo.scenario import Scenario, States
from rival_workers.cli.demo.view import RunSteps, open_view
from rival_workers.cli.display.formats import seconds_text, status_text, took
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.display.run_text import step_names
from rival_workers.dev.file_lock import is_locked
from rival_workers.dev.stack import Stack, create_database, drop_database, open_stack
from rival_workers.dev.stack_paths import StackPaths
from rival_workers.dev.waiting import wait_until
from rival_workers.runtime.fleet import die_with_parent
from rival_workers.runtime.host import host_name
from rival_workers.settings import WorkerSettings
from rival_workers.store import Store, migrations, open_store

#: In the package, so that the demo also runs from an installed wheel.
WORKFLOWS = Path(__file__).parent / "workflows"
DIRECTORY = Path(".rival") / "demo"
LEASE = 2.0
PROCESSES = 2
_STARTING, _STOPPING = 60.0, 15.0


@click.command()
@click.option("--dashboard/--no-dashboard", "with_dashboard", default=True, help="Serve the dashboard, if installed.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in a browser.")
@click.option("--keep", "keeps", is_flag=True, help="Keep dashboard, workers and servers after the runs, until Ctrl-C.")
@json_option
def demo(with_dashboard: bool, opens: bool, keeps: bool, as_json: bool) -> int:
    """Watch durable runs: retries, a timeout, a cancel, and a worker that is killed in the middle of a step."""
    click.echo(f"starting Postgres, Redis and {PROCESSES} worker processes …", err=True)
    code = None
    try:
        with open_stack(DIRECTORY) as stack, _own_settings(stack) as settings, _upgraded(settings) as store:
            shown = beside(settings, opens, DIRECTORY / "dashboard") if with_dashboard and is_installed() else None
            with shown or nullcontext() as link, _workers(settings):
                _print_link(link, as_json)
                states = _run_scenario(settings, store, as_json)
                if keeps:
                    code = print_summary(states, as_json, link)
                    _until_signal(as_json)
    finally:
        _wait_until_servers_stopped()
    if code is not None:
        return code
    code = print_summary(states, as_json)
    if link is not None:
        click.echo("`rival demo --keep` keeps the dashboard and the workers until Ctrl-C.", err=True)
    return code


def _print_link(link: str | None, as_json: bool) -> None:
    if link is not None:
        click.echo(f"Dashboard: {link}\n", err=as_json)


def _until_signal(as_json: bool) -> None:
    click.echo("\nDashboard and workers stay until Ctrl-C: start a workflow from its form.", err=as_json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


@contextmanager
def _upgraded(settings: WorkerSettings) -> Iterator[Store]:
    with closing(open_store(settings.require_database())) as store:
        migrations.upgrade(store.database)
        yield store


@contextmanager
def _own_settings(stack: Stack) -> Iterator[WorkerSettings]:
    """A new database and queue, so that an earlier demo cannot interfere."""
    name = f"demo_{secrets.token_hex(4)}"
    url = create_database(stack.database_url, name)
    try:
        yield WorkerSettings(
            database_url=url,
            broker_url=stack.broker_url,
            queue=name,
            workflows=str(WORKFLOWS),
            lease=LEASE,
            shutdown_grace=5.0,
        )
    finally:
        drop_database(stack.database_url, name)


def _run_scenario(settings: WorkerSettings, store: Store, as_json: bool) -> States:
    with Rival(settings=settings) as rival:
        _wait_for_workers(store)
        plans = {info.name: step_names(info) for info in rival.workflows()}
        return Scenario(rival, store, open_view(RunSteps(DEMO_RUNS, plans), console(stderr=as_json))).run()


@contextmanager
def _workers(settings: WorkerSettings) -> Iterator[None]:
    """A fleet, started like a user would start it; its log is in the folder of the demo."""
    command = [sys.executable, "-m", "rival_workers.cli", "worker", "--processes", str(PROCESSES)]
    with (DIRECTORY / "workers.log").open("wb") as log:
        fleet = subprocess.Popen(
            command,
            env=settings.environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield
    finally:
        _stop(fleet, settings.shutdown_grace)


def _stop(fleet: subprocess.Popen[bytes], grace: float) -> None:
    fleet.terminate()
    try:
        fleet.wait(grace + 10)
    except subprocess.TimeoutExpired:
        fleet.kill()
        fleet.wait()


def _wait_for_workers(store: Store) -> None:
    if not wait_until(lambda: len(store.executors_on(host_name())) >= PROCESSES, _STARTING, every=0.1):
        raise RivalError(f"The workers did not start: see {DIRECTORY / 'workers.log'}.")


def _wait_until_servers_stopped() -> None:
    """Nothing may be running when the command has ended."""
    lock = StackPaths(DIRECTORY).supervisor_lock
    if lock.exists():
        wait_until(lambda: not is_locked(lock), _STOPPING, every=0.05)


def print_summary(states: States, as_json: bool, kept: str | None = None) -> int:
    """Returns exit code 0 only if every run ended as expected. `kept`: the link of a dashboard that stays."""
    found = [problem for run in DEMO_RUNS for problem in problems(run, states[run.name])]
    if as_json:
        runs = [_as_json(run, states[run.name]) for run in DEMO_RUNS]
        print_json({"ok": not found, "runs": runs, "problems": found, "dashboard": kept})
    else:
        rows = [_row(run, states[run.name]) for run in DEMO_RUNS]
        out = console()
        out.print()
        out.print(table(("run", "status", "took", "as expected", "what it shows"), rows))
        out.print()
        fine = "every run ended as expected" + ("" if kept else "; nothing is left running")
        out.print("\n".join(found) or fine, markup=False)
    return 1 if found else 0


def _row(run: DemoRun, state: RunState) -> tuple[Any, ...]:
    as_expected = "no" if problems(run, state) else "yes"
    return run.name, status_text(state.status), seconds_text(took(state)), as_expected, run.shows


def _as_json(run: DemoRun, state: RunState) -> dict[str, Any]:
    return {
        "name": run.name,
        "run_id": state.run_id,
        "workflow": run.workflow,
        "status": state.status,
        "as_expected": not problems(run, state),
        "took": took(state),
        "shows": run.shows,
    }
