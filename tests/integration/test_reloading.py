"""Workflow files change under a running worker: new runs take the new version, runs in flight keep theirs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.output import is_printed
from tests.support.workers import WorkerProcess, Workers, wait_until

BEFORE = """
import pathlib, time
from shared_words import greeting

def blocks(run):
    here = pathlib.Path({directory!r})
    (here / f"{{run.run_id}}.begun").touch()
    while not (here / "released").exists():
        time.sleep(0.02)
    return "blocked"

def speaks():
    return greeting() + " by the old code"

steps = [blocks, speaks]
"""
AFTER = """
from shared_words import greeting

def speaks():
    return greeting() + " by the new code"

steps = [speaks]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path, BEFORE, "hello")
    return tmp_path / "flows"


def write(tmp_path: Path, text: str, word: str) -> None:
    flows = tmp_path / "flows"
    flows.mkdir(exist_ok=True)
    (flows / "shared_words.py").write_text(f"def greeting():\n    return {word!r}\n")
    (flows / "speech.py").write_text(text.format(directory=str(tmp_path)))


def result_of(rival: Rival, run_id: str) -> object:
    return rival.wait("speech", run_id, timeout=20).unwrap()


def start_new(rival: Rival, run_id: str) -> str:
    """A producer keeps the version that it has seen for a moment."""
    rival._validators.clear()
    return rival.run("speech", run_id=run_id).run_id


def says(rival: Rival) -> object:
    return result_of(rival, start_new(rival, f"at-{time.time()}"))


@pytest.mark.parametrize(
    ("pool", "count"), [("threads", 2), pytest.param("prefork", 1, marks=pytest.mark.slow)], ids=["threads", "prefork"]
)
def test_a_run_in_flight_ends_on_its_version_and_new_ones_take_the_new(
    rival: Rival, workers: Workers, tmp_path: Path, files: Path, pool: str, count: int
) -> None:
    fleet = workers.start(files, count, pool=pool, concurrency=2, reload=True, log_format="json")
    rival.run("speech", run_id="old")
    wait_until(lambda: (tmp_path / "old.begun").exists(), what="the first step runs")
    write(tmp_path, AFTER, "good day")
    wait_until_said(fleet, TAKEN.format("…"))
    # Nothing is parked: a worker that has not seen the change yet checks its files again.
    assert result_of(rival, start_new(rival, "new")) == "good day by the new code"
    assert [step.path for step in rival.state("new").steps] == ["speaks"]
    (tmp_path / "released").touch()
    assert result_of(rival, "old") == "hello by the old code"
    assert [step.path for step in rival.state("old").steps] == ["blocks", "speaks"]
    assert rival.state("old").version != rival.state("new").version
    assert {line for worker in fleet for line in said(worker)} == {LOADED, TAKEN.format(rival.state("new").version)}


LOADED = "<files> changed: loaded again"
TAKEN = "new runs of workflow speech take version {}; open runs keep theirs"


def said(worker: WorkerProcess) -> list[str]:
    """What the worker has logged about its files. It may have seen them between two changes."""
    lines = [json.loads(line) for line in worker.log.splitlines()]
    messages = [line["message"] for line in lines if line["logger"] == "rival.reload"]
    return [
        re.sub(r"^(shared_words\.py|speech\.py)(, speech\.py)? changed", "<files> changed", one) for one in messages
    ]


def wait_until_said(fleet: list[WorkerProcess], message: str) -> None:
    """Until a worker has logged the whole message; "…" stands for any text."""

    def all_said() -> list[str]:
        return [one for worker in fleet for one in said(worker)]

    wait_until(
        lambda: any(is_printed(message.splitlines(), one.splitlines()) for one in all_said()),
        what=lambda: f"{message!r} in {all_said()}",
    )


def test_a_file_that_is_broken_while_it_is_changed_leaves_the_version_before(
    rival: Rival, workers: Workers, tmp_path: Path, files: Path
) -> None:
    (tmp_path / "released").touch()
    [worker] = workers.start(files, reload=True, log_format="json")
    write(tmp_path, AFTER + "steps.append(7)\n", "good day")
    broken = (
        f"speech.py cannot be loaded; the previous version stays:\n{files / 'speech.py'}:7: workflow 'speech': "
        "steps[1]: 7 is not a step: give a function, step(function, …) or {'fn': function, …}"
    )
    wait_until_said([worker], broken)
    assert result_of(rival, start_new(rival, "before")) == "hello by the old code"
    write(tmp_path, AFTER, "good day")
    wait_until_said([worker], TAKEN.format("…"))
    assert result_of(rival, start_new(rival, "after")) == "good day by the new code"
    taken = TAKEN.format(rival.state("after").version)
    lines = said(worker)
    assert set(lines) == {broken, LOADED, taken}
    assert lines[-3:] == [broken, LOADED, taken]


def test_new_code_in_the_same_steps_is_used_and_also_in_what_files_share(
    rival: Rival, workers: Workers, tmp_path: Path, files: Path
) -> None:
    (tmp_path / "released").touch()
    [worker] = workers.start(files, reload=True, log_format="json")
    for word in ("ciao", "olé!", "hiya"):
        # Of the same length and within one second: neither times nor bytecode must hide it.
        write(tmp_path, BEFORE, word)
        wait_until(lambda said=f"{word} by the old code": says(rival) == said, what=word)  # type: ignore[misc]
    assert set(said(worker)) == {LOADED}
