"""A consumer of Celery's events, like Flower, sees every attempt under its own name, with its true state."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import Celery

from rival_client import Rival
from rival_workers.cli.flower import run_url
from tests.support.effort import long_but_first
from tests.support.threads import join_all
from tests.support.workers import Workers, wait_until

WORKFLOW = """
from rival_workers import StepError, step

name = "tree-processing"

def find_tree():
    return {"tree_id": "oak-123"}

def chop_tree(run):
    if run.attempt < 2:
        raise StepError("blunt axe", behavior="retry")
    return {"pieces": 10}

def stack_wood():
    raise ValueError("it fell over")

steps = [find_tree, step(chop_tree, max_attempts=3, base_delay=0.05), stack_wood]
"""


DASHBOARD = "http://dashboard.example.com/ops"


class Onlooker:
    """Follows the events and keeps the state of every task, the way Flower does."""

    def __init__(self, broker_url: str) -> None:
        self.app = Celery(broker=broker_url, set_as_current=False)
        self.state = self.app.events.State()
        self._receiver: Any = None
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        with self.app.connection_for_read() as connection:
            self._receiver = self.app.events.Receiver(connection, handlers={"*": self.state.event})
            with suppress(socket.timeout):
                self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def __enter__(self) -> Onlooker:
        self._thread.start()
        wait_until(lambda: self._receiver is not None)
        time.sleep(0.3)  # the subscription has no other sign
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.should_stop = True
        join_all([self._thread])

    def attempts(self, run_id: str) -> dict[str, tuple[str, str]]:
        """Task id -> (name, state) of the run's attempts."""
        tasks = dict(self.state.tasks)
        return {uuid: (task.name, task.state) for uuid, task in tasks.items() if uuid.startswith(run_id + ":")}


def expected(run_id: str) -> dict[str, tuple[str, str]]:
    return {
        f"{run_id}:find_tree:1": ("tree-processing.find_tree", "SUCCESS"),
        f"{run_id}:chop_tree:1": ("tree-processing.chop_tree", "RETRY"),
        f"{run_id}:chop_tree:2": ("tree-processing.chop_tree", "SUCCESS"),
        f"{run_id}:stack_wood:1": ("tree-processing.stack_wood", "FAILURE"),
    }


#: Celery itself reports the end of an attempt that has a message of its own. Its pools differ in how they show a retry.
AS_CELERY_REPORTS = {
    "threads": [
        "Retry(Retry(...), AttemptFailed('StepError: blunt axe'), None)",
        "AttemptFailed('ValueError: it fell over')",
    ],
    "prefork": ["AttemptFailed('StepError: blunt axe')", "AttemptFailed('ValueError: it fell over')"],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tree_processing.py"
    path.write_text(WORKFLOW)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("threads", "prefork"))
@pytest.mark.parametrize("budget", [1, 0], ids=["continuation", "message-per-attempt"])
def test_every_attempt_is_seen_under_its_own_name_with_its_true_state(
    rival: Rival, workers: Workers, broker_url: str, file: Path, pool: str, budget: int
) -> None:
    workers.start(file, pool=pool, concurrency=2, events=True, continuation_budget=budget)
    with Onlooker(broker_url) as onlooker:
        run_id = rival.run("tree-processing").run_id
        assert rival.wait("tree-processing", run_id, timeout=20).status == "failed"
        wait_until(lambda: onlooker.attempts(run_id) == expected(run_id), 5, str(onlooker.attempts(run_id)))
        assert run_id not in onlooker.state.tasks, "the start of a run is not shown, whose success is not the run's"
        # Workers of other tests share the broker.
        own = [task.name for uuid, task in dict(onlooker.state.tasks).items() if uuid.startswith(run_id)]
        assert set(own) <= {name for name, _ in expected(run_id).values()}
        second = onlooker.state.tasks[f"{run_id}:chop_tree:2"]
        assert second.args == f"(run={run_id!r}, step='chop_tree', attempt=2)"
        assert (second.retries, second.root_id) == (1, run_id)
        tasks = onlooker.state.tasks
        failed = [tasks[f"{run_id}:{task}"].exception for task in ("chop_tree:1", "stack_wood:1")]
        assert failed == (["StepError: blunt axe", "ValueError: it fell over"] if budget else AS_CELERY_REPORTS[pool])


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("threads", "prefork"))
def test_events_can_be_switched_on_from_afar(
    rival: Rival, workers: Workers, broker_url: str, file: Path, pool: str
) -> None:
    workers.start(file, pool=pool, concurrency=1)
    with Onlooker(broker_url) as onlooker:
        onlooker.app.control.enable_events()

        def seen() -> bool:
            run_id = rival.run("tree-processing").run_id
            rival.wait("tree-processing", run_id, timeout=20)
            time.sleep(0.2)
            return onlooker.attempts(run_id) == expected(run_id)

        wait_until(seen, 10, "a run whose attempts are all seen")


@pytest.mark.slow
def test_flower_shows_every_attempt(rival: Rival, workers: Workers, broker_url: str, file: Path) -> None:
    workers.start(file, concurrency=1)
    with flower(broker_url) as url:
        run_id = ""

        def seen() -> bool:
            nonlocal run_id
            run_id = rival.run("tree-processing").run_id
            rival.wait("tree-processing", run_id, timeout=20)
            time.sleep(0.5)
            return len(_attempts(url, run_id)) == len(expected(run_id))

        wait_until(seen, 20, "Flower has switched the events on")
        assert _attempts(url, run_id) == expected(run_id)
        shown = httpx.get(f"{url}/task/{run_id}:chop_tree:2")
        assert shown.text.count(f'href="/task/{run_id}"') == 2, "of the root and of the parent"
        assert httpx.get(f"{url}/task/{run_id}").headers["location"] == f"{DASHBOARD}/runs/{run_id}"
        assert httpx.get(f"{url}/task/gone:pay:1").headers["location"] == f"{DASHBOARD}/runs?q=gone%3Apay%3A1"


@pytest.mark.parametrize(
    ("task_id", "url"),
    [
        ("order-42", "runs/order-42"),
        ("order 42/ä", "runs?q=order+42%2F%C3%A4"),
        ("..", "runs?q=.."),
        ("order-42:lines[3]/pack:2", "runs?q=order-42%3Alines%5B3%5D%2Fpack%3A2"),
        ("order-42:pay:2+1", "runs?q=order-42%3Apay%3A2%2B1"),
    ],
)
def test_a_task_that_flower_does_not_know_is_shown_by_the_dashboard(task_id: str, url: str) -> None:
    for root in (DASHBOARD, f"{DASHBOARD}/"):
        assert run_url(root, task_id) == f"{DASHBOARD}/{url}"


def _attempts(url: str, run_id: str) -> dict[str, tuple[str, str]]:
    with urllib.request.urlopen(f"{url}/api/tasks?limit=1000", timeout=5) as answer:
        tasks = json.load(answer)
    return {uuid: (task["name"], task["state"]) for uuid, task in tasks.items() if uuid.startswith(run_id + ":")}


@contextmanager
def flower(broker_url: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rival_workers.cli.flower", "--address=127.0.0.1", f"--port={port}"]
    own = {"FLOWER_UNAUTHENTICATED_API": "true", "BROKER_URL": broker_url, "RIVAL_DASHBOARD_URL": DASHBOARD}
    process = subprocess.Popen(
        command,
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(url), 30, "Flower answers")
        yield url
    finally:
        process.kill()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthcheck", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False
