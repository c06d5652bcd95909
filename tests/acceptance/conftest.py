"""The `rival` command as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

from rival_client.settings import Settings
from rival_workers import create_workflow
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.store import open_store
from tests.support.output import as_expected, is_printed, normalised, normalised_json
from tests.support.terminal import Terminal
from tests.support.workers import ROOT, wait_for_line
from tests.support.zygote import Forked, Zygote

DOWN = "postgresql://rival:s3cret@127.0.0.1:1/rival"

WORKFLOWS = """
import time
from pydantic import BaseModel
from rival_workers import StepError, create_workflow, step

class Greeting(BaseModel):
    name: str
    times: int = 1

def greet(input: Greeting, state, log):
    log.info("greeting", name=input.name)
    state.description = f"greeted {input.name}"
    return {"text": f"hello {input.name}" * input.times}

def fails(run):
    if run.attempt < 2:
        raise StepError("not yet", behavior="retry")
    raise ValueError("never")

def waits():
    raise StepError("later", behavior="retry")

def naps(input):
    time.sleep(input["seconds"])
    return "rested"

create_workflow("greet", description="Says hello").input(Greeting).step(greet).register()
create_workflow("broken").step(fails, max_attempts=3, base_delay=0.01).register()
create_workflow("patient").step(waits, max_attempts=9, base_delay=60).register()
create_workflow("nap").step(naps).register()
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str
    folder: Path

    def prints(self, expected: str) -> None:
        """The whole output, line by line; see tests/support/output.py. Nothing is on stderr."""
        assert self.err == ""
        self.stdout_is(expected)

    def complains(self, expected: str) -> None:
        """The whole of stderr, line by line. Nothing is on stdout."""
        assert self.out == ""
        self.stderr_is(expected)

    def stdout_is(self, expected: str) -> None:
        assert_printed(expected, self.out, self.folder)

    def stderr_is(self, expected: str) -> None:
        assert_printed(expected, self.err, self.folder)

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def prints_json(self, expected: Any) -> None:
        """The whole value; ... in it stands for any value. Nothing is on stderr."""
        assert self.err == ""
        assert as_expected(expected, normalised_json(self.json, self.folder)) == expected

    @property
    def error(self) -> dict[str, Any]:
        """What a failed command says with --json."""
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


def assert_printed(expected: str, printed: str, folder: Path) -> None:
    shown = textwrap.dedent(expected).strip("\n").splitlines()
    found = normalised(printed, folder)
    assert is_printed(shown, found.splitlines()), f"expected:\n{textwrap.dedent(expected)}\nprinted:\n{found}"


class Cli:
    """`rival …`, in `directory`, with only the environment that is given."""

    def __init__(self, zygote: Zygote, directory: Path, env: dict[str, str]) -> None:
        self._zygote, self.directory = zygote, directory
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("RIVAL_", "CELERY_"))}
        clean.pop("DATABASE_URL", None)
        self.env = clean | {"PYTHONPATH": str(ROOT)} | env
        self._started: list[Forked] = []

    def __call__(self, *args: str, stdin: str = "", code: int = 0, **env: str) -> Answer:
        answer = Answer(*self._zygote.run(args, self.directory, self.env | env, stdin), self.directory)
        assert answer.code == code, f"rival {' '.join(args)} ended with {answer}"
        assert "Traceback" not in answer.err
        return answer

    def start(self, *args: str, log: str, **env: str) -> Forked:
        """A command that stays; what it says is in `log` in the folder."""
        (self.directory / log).write_bytes(b"")
        process = self._zygote.start("command", args, self.directory, self.env | env, str(self.directory / log))
        self._started.append(process)
        return process

    def terminal(self, *args: str, size: tuple[int, int] = (80, 24)) -> Terminal:
        """On a pseudo-terminal of that width and height."""
        return Terminal(args, self.directory, self.env, size)

    def log(self, name: str) -> str:
        return (self.directory / name).read_text()

    def wait_for(self, log: str, line: str, times: int = 1) -> None:
        """Until the log has a whole line like that as often as that: "…" stands for any text."""
        wait_for_line(lambda: self.log(log), line, times, 60)

    def clean_up(self) -> None:
        for process in self._started:
            for one in family(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait(10)


def family(pid: int) -> list[psutil.Process]:
    """A process and all that come from it, as long as it lives."""
    try:
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


def processes_in(directory: Path) -> list[str]:
    """Everything that runs in or for a directory, servers and workers alike."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            works_there = Path(process.cwd()).is_relative_to(directory)
            works_for_it = any(str(directory) in argument for argument in process.cmdline())
            if process.pid != os.getpid() and (works_there or works_for_it):
                found.append(" ".join(process.cmdline()))
    return found


def stop(process: Forked, number: int = signal.SIGINT) -> int:
    """As Ctrl-C does, or an orchestrator: to the command alone, which must see to its children."""
    process.send_signal(number)
    return process.wait(40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(WORKFLOWS)
    return tmp_path


@pytest.fixture
def bare(zygote: Zygote, folder: Path) -> Iterator[Cli]:
    """No servers are configured."""
    cli = Cli(zygote, folder, {})
    yield cli
    cli.clean_up()


@pytest.fixture
def cli(zygote: Zygote, folder: Path, settings: Settings) -> Iterator[Cli]:
    """On the test's own database and queue."""
    urls = {"RIVAL_DATABASE_URL": settings.database_url or "", "RIVAL_BROKER_URL": settings.broker_url or ""}
    made = Cli(zygote, folder, urls | {"RIVAL_QUEUE": settings.queue, "RIVAL_LEASE": "2"})
    yield made
    made.clean_up()


class Greeting(BaseModel):
    name: str
    times: int = 1


def greet(input: Greeting) -> str:
    return f"hello {input.name}"


@pytest.fixture
def shop(cli: Cli, settings: Settings) -> Cli:
    """The workflow `greet` is registered, as a worker's start leaves it; no worker runs."""
    workflow = create_workflow("greet", description="Says hello").input(Greeting).step(greet).build()
    store = open_store(settings.require_database())
    store.register_workflow(workflow.name, workflow.plan, workflow.input_schema, workflow.description)
    store.close()
    return cli


@pytest.fixture
def empty_url(stack: Stack) -> Iterator[str]:
    """A database without Rival's tables."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    yield create_database(stack.database_url, name)
    drop_database(stack.database_url, name)
