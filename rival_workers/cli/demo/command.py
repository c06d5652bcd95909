"""`rival demo`: an embedded stack, two worker processes and some runs that meet a retry, a timeout, a cancel, a failure
and a killed worker, watched live. Fails unless every run ends as it must, and leaves nothing running."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from rival_client.api.client import Rival
from rival_client.errors import RivalError
from rival_client.model.records import RunState
from rival_workers.cli.demo.runs import CAST, Role, problems
from rival_workers.cli.demo.scenario import Show, States
from rival_workers.cli.demo.view import Cast, open_view
from rival_workers.cli.output import console, json_option, print_json, seconds_text, status_text, table, took
from rival_workers.cli.show import step_names
from rival_workers.dev.board import Places
from rival_workers.dev.locks import is_locked
from rival_workers.dev.stack import Stack, create_database, drop_database, open_stack
from rival_workers.dev.waiting import wait_until
from rival_workers.runtime.fleet import die_with_parent
from rival_workers.runtime.host import host_name
from rival_workers.settings import WorkerSettings
from rival_workers.store import Store, migrations, open_store

#: In the package, so that the demo runs from an installation too.
WORKFLOWS = Path(__file__).parent / "workflows"
DIRECTORY = Path(".rival") / "demo"
LEASE = 2.0
PROCESSES = 2
_STARTING, _STOPPING = 60.0, 15.0


@click.command()
@json_option
def demo(as_json: bool) -> int:
    """See durable runs live: retries, a timeout, a cancel, and a worker killed in the middle of a step."""
    click.echo(f"starting Postgres, Redis and {PROCESSES} worker processes …", err=True)
    try:
        with open_stack(DIRECTORY) as stack, _own_settings(stack) as settings:
            states = _perform(settings, as_json)
    finally:
        _wait_for_the_servers_end()
    return tell_end(states, as_json)


@contextmanager
def _own_settings(stack: Stack) -> Iterator[WorkerSettings]:
    """A database and a queue of its own: nothing of an earlier demo can interfere."""
    name = f"demo_{secrets.token_hex(4)}"
    url = create_database(stack.database_url, name)
    try:
        yield WorkerSettings(
            database_url=url, broker_url=stack.broker_url, queue=name, workflows=str(WORKFLOWS),
            lease=LEASE, shutdown_grace=5.0,
        )  # fmt: skip
    finally:
        drop_database(stack.database_url, name)


def _perform(settings: WorkerSettings, as_json: bool) -> States:
    with closing(open_store(settings.require_database())) as store, Rival(settings=settings) as rival:
        migrations.upgrade(store.database)
        with _workers(settings):
            _wait_for_workers(store)
            plans = {info.name: step_names(info) for info in rival.workflows()}
            return Show(rival, store, open_view(Cast(CAST, plans), console(stderr=as_json))).run()


@contextmanager
def _workers(settings: WorkerSettings) -> Iterator[None]:
    """A fleet as a user would start it, with its log in the demo's folder."""
    command = [sys.executable, "-m", "rival_workers.cli", "worker", "--processes", str(PROCESSES)]
    with (DIRECTORY / "workers.log").open("wb") as log:
        fleet = subprocess.Popen(
            command, env=settings.environment(), stdout=log, stderr=log, start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip
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


def _wait_for_the_servers_end() -> None:
    """So that nothing runs any more when the command has ended."""
    lock = Places(DIRECTORY).supervisor_lock
    if lock.exists():
        wait_until(lambda: not is_locked(lock), _STOPPING, every=0.05)


def tell_end(states: States, as_json: bool) -> int:
    """The exit code: 0 only if every run has ended as it must."""
    found = [problem for role in CAST for problem in problems(role, states[role.name])]
    if as_json:
        print_json({"ok": not found, "runs": [_as_json(role, states[role.name]) for role in CAST], "problems": found})
    else:
        rows = [_row(role, states[role.name]) for role in CAST]
        out = console()
        out.print()
        out.print(table(("run", "status", "took", "as expected", "what it shows"), rows))
        out.print()
        out.print("\n".join(found) or "every run ended as it must; nothing is left running", markup=False)
    return 1 if found else 0


def _row(role: Role, state: RunState) -> tuple[Any, ...]:
    as_expected = "no" if problems(role, state) else "yes"
    return role.name, status_text(state.status), seconds_text(took(state)), as_expected, role.shows


def _as_json(role: Role, state: RunState) -> dict[str, Any]:
    return {
        "name": role.name, "run_id": state.run_id, "workflow": role.workflow, "status": state.status,
        "as_expected": not problems(role, state), "took": took(state), "shows": role.shows,
    }  # fmt: skip
