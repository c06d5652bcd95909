"""Bad input gets a clear error and changes nothing; what cannot be reached is said so, soon."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rival_client import DatabaseUnavailable, InvalidInput, Rival, RunConflict, RunFailed, RunNotFound, UnknownWorkflow
from rival_client.settings import Settings
from tests.support.output import whole
from tests.support.workers import Workers

WORKFLOWS = """
from pydantic import BaseModel, Field
from rival_workers import create_workflow

class Order(BaseModel):
    customer: int
    lines: list[str] = Field(min_length=1)
    note: str = Field(default="", max_length=10)

def take(input): return input.customer
def unjson(): return {1, 2}
def huge(): return "x" * 5000
def nul(): return "a\\x00b"
def notes(state): state.page = object()
def echo(input): return input

create_workflow("order").input(Order).step(take).register()
create_workflow("unjson").step(unjson).step(echo).register()
create_workflow("huge").step(huge).step(echo).register()
create_workflow("nul").step(nul).step(echo).register()
create_workflow("notes").step(notes).step(echo).register()
create_workflow("echo").step(echo).register()
"""


@pytest.fixture
def fleet(workers: Workers, tmp_path: Path) -> Workers:
    file = tmp_path / "workflows.py"
    file.write_text(WORKFLOWS)
    workers.start(file, max_payload=2000)
    return workers


def test_bad_starts_are_refused_with_every_reason_and_create_nothing(rival: Rival, fleet: Workers) -> None:
    with pytest.raises(UnknownWorkflow) as unknown:
        rival.run("oder", {})
    assert str(unknown.value) == (
        "No workflow named 'oder' is registered (did you mean 'order'?). Known workflows: echo, huge, notes, nul, "
        "order, unjson. Workflows register when a worker that has them starts: `rival worker --workflows PATH`."
    )
    with pytest.raises(InvalidInput) as caught:
        rival.run("order", {"lines": [], "note": "much too long a note", "customer": "seven"})
    assert len(caught.value.problems) == 3
    for field in ("customer", "lines", "note"):
        assert any(problem.startswith(field) for problem in caught.value.problems), field
    assert rival.runs() == []
    good = {"customer": 7, "lines": ["axe"]}
    assert rival.run("order", good, run_id="x").status == "started"
    with pytest.raises(
        RunConflict,
        match=whole("Run 'x' exists already, with another input. Use another run id, or none to have one made."),
    ):
        rival.run("order", good | {"customer": 8}, run_id="x")
    assert rival.wait("order", "x", timeout=15).result == 7
    assert [run.input for run in rival.runs()] == [good]
    with pytest.raises(RunNotFound, match=whole("Unknown run 'y'. `rival ls` lists the runs.")):
        rival.cancel("y")


REASONS = {
    "unjson": (
        "Run '…' of workflow 'unjson' failed at step 'unjson': InvalidPayload: the result of step 'unjson' "
        "of run '…' is not JSON: set is not JSON"
    ),
    "huge": (
        "Run '…' of workflow 'huge' failed at step 'huge': InvalidPayload: the result of step 'huge' of run "
        "'…' is 5,002 bytes, over the limit of 2,000. Store large things elsewhere and pass a reference, or "
        "raise RIVAL_MAX_PAYLOAD."
    ),
    "nul": (
        "Run '…' of workflow 'nul' failed at step 'nul': InvalidPayload: the result of step 'nul' of run "
        "'…' holds a NUL character (\\u0000), which Postgres cannot store"
    ),
    "notes": (
        "Run '…' of workflow 'notes' failed at step 'notes': InvalidPayload: the state of step 'notes' of "
        "run '…' is not JSON: object is not JSON"
    ),
}


def test_a_result_that_cannot_be_stored_fails_the_step_with_that_reason(rival: Rival, fleet: Workers) -> None:
    for workflow, reason in REASONS.items():
        run = rival.run(workflow)
        result = rival.wait(workflow, run.run_id, timeout=15)
        assert (result.status, result.failed_step) == ("failed", workflow)
        assert result.error is not None
        assert result.error["type"] == "InvalidPayload"
        with pytest.raises(RunFailed, match=whole(reason)):
            result.unwrap()


# -- what cannot be reached -------------------------------------------------------------------------------


#: Seconds. A call that has no limit of its own would wait for ever for a server that does not answer.
BOUND = 60.0
NOT_THERE = (
    "The database at postgresql://me:***@127.0.0.1:1/db does not answer (connection failed: …). Check that it runs and "
    "that RIVAL_DATABASE_URL is right; `rival doctor` checks the rest."
)


def in_bounds(call: Callable[[], Any]) -> Any:
    began = time.monotonic()
    try:
        return call()
    finally:
        assert time.monotonic() - began < BOUND


@contextmanager
def silent_server() -> Iterator[int]:
    """Takes connections and never says a word: a frozen server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_with_the_broker_down_a_run_starts_all_the_same_and_soon(
    rival: Rival, fleet: Workers, settings: Settings
) -> None:
    with Rival(settings=settings.with_(broker_url="redis://127.0.0.1:1/0", ring_grace=0.5)) as lonely:
        run = lonely.run("echo", 1)
        assert run.status == "started"
        assert lonely.wait("echo", run.run_id, timeout=20).result == 1


def test_with_the_broker_frozen_a_run_starts_all_the_same_within_bounds(
    rival: Rival, fleet: Workers, settings: Settings
) -> None:
    with (
        silent_server() as port,
        Rival(settings=settings.with_(broker_url=f"redis://127.0.0.1:{port}/0", ring_grace=0.5)) as lonely,
    ):
        first = in_bounds(lambda: lonely.run("echo", 1))
        in_bounds(lambda: lonely.run("echo", 2))
    assert rival.wait("echo", first.run_id, timeout=20).result == 1


def test_with_the_database_down_the_error_says_so_soon() -> None:
    with Rival("postgresql://me:hunter2@127.0.0.1:1/db") as rival:
        for call in (lambda: rival.run("echo", 1), lambda: rival.wait("echo", "x", timeout=30), rival.runs):
            with pytest.raises(DatabaseUnavailable, match=whole(NOT_THERE)) as caught:
                in_bounds(call)
            assert "hunter2" not in str(caught.value)


def test_with_the_database_frozen_the_error_comes_within_bounds() -> None:
    with (
        silent_server() as port,
        Rival(f"postgresql://me@127.0.0.1:{port}/db") as rival,
        pytest.raises(DatabaseUnavailable, match=whole("The database at … does not answer (…")),
    ):
        in_bounds(lambda: rival.run("echo", 1))


def test_a_database_that_is_not_rivals_is_said_so(tmp_path: Path) -> None:
    with Rival(f"sqlite:///{tmp_path}/nowhere/app.db") as rival, pytest.raises(DatabaseUnavailable):
        rival.run("echo", 1)
