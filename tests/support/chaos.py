"""What chaos tests share: workflows that keep a ledger of what really ran, a producer that never gives up, and the
question that each of them ends with: is every run terminal and right, each result accepted once, nothing stuck?
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import func, select

from rival_client import DatabaseUnavailable, Rival
from rival_client.broker.message import StepMessage
from rival_client.db.fleet_tables import executors
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model.statuses import RUN_TERMINAL, STEP_TERMINAL
from tests.support.histories import assert_histories_are_complete
from tests.support.threads import join_all
from tests.support.workers import WorkerProcess, Workers, wait_until

#: Every execution writes a line before it works: run, step, attempt, what it saw of the step before, its own nonce.
SOURCE = """
import os, signal, time, uuid
from rival_workers import StepError, step

LEDGER = {ledger!r}

def note(run, last_step):
    nonce = uuid.uuid4().hex
    saw = (last_step.result or {{}}).get("nonce", "-")
    file = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{{run.run_id}} {{run.step}} {{run.attempt}} {{saw}} {{nonce}} {{os.getpid()}}\\n".encode())
    os.close(file)
    return nonce

def work(run, last_step, input):
    nonce = note(run, last_step)
    time.sleep(input.get("seconds", 0))
    return {{"nonce": nonce, "count": (last_step.result or {{"count": 0}})["count"] + 1}}

def flaky(run, last_step, input):
    if run.attempt == 1:
        note(run, last_step)
        raise StepError("not yet", behavior="retry")
    return work(run, last_step, input)

def deadly(run, last_step):
    note(run, last_step)
    os.kill(os.getpid(), signal.SIGKILL)

{more}
"""

CHAIN = """
name = "chain"
steps = [step(work, name="first"), step(flaky, name="second", max_attempts=2, base_delay=0.05),
         step(work, name="third"), step(work, name="fourth")]
"""
CHAIN_ATTEMPTS = {"first": 1, "second": 2, "third": 1, "fourth": 1}


@dataclass(frozen=True)
class Line:
    """One execution of a step's function."""

    run_id: str
    step: str
    attempt: int
    saw: str
    nonce: str
    pid: int


class Ledger:
    """What really ran, whatever the database says: the step functions' own file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def workflow(self, more: str = CHAIN) -> Path:
        """A workflow file whose steps write here."""
        file = self.path.parent / f"wf_{uuid.uuid4().hex[:6]}.py"
        file.write_text(SOURCE.format(ledger=str(self.path), more=more))
        return file

    def lines(self, run_id: str | None = None, step: str | None = None) -> list[Line]:
        if not self.path.exists():
            return []
        found = [_line(text) for text in self.path.read_text().splitlines()]
        return [line for line in found if run_id in (None, line.run_id) and step in (None, line.step)]


def _line(text: str) -> Line:
    run_id, step, attempt, saw, nonce, pid = text.split()
    return Line(run_id, step, int(attempt), saw, nonce, int(pid))


class Producer:
    """Starts runs in a thread of its own for as long as the block lasts, each until it is taken."""

    def __init__(self, rival: Rival, workflow: str = "chain", every: float = 0.1, **input: Any) -> None:
        self._rival, self._workflow, self._every, self._input = rival, workflow, every, input
        self.run_ids: list[str] = []
        self.slowest = 0.0
        self.refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        join_all([self._thread], 60)
        if self._error is not None and error is None:
            raise self._error

    def _produce(self) -> None:
        try:
            while not self._stop.wait(self._every):
                self._start(f"live-{uuid.uuid4().hex[:10]}")
        except BaseException as error:
            self._error = error

    def _start(self, run_id: str) -> None:
        while True:
            began = time.monotonic()
            try:
                self._rival.run(self._workflow, self._input, run_id=run_id)
            except DatabaseUnavailable:
                self.refused += 1
                time.sleep(0.1)
                continue
            finally:
                self.slowest = max(self.slowest, time.monotonic() - began)
            self.run_ids.append(run_id)
            return


def thrice(send: Callable[..., None]) -> Callable[..., None]:
    """A broker that delivers every message three times, shuffled, some copies long after the others."""

    def sending(doorbell: Any, messages: Sequence[StepMessage], changed: Sequence[str]) -> None:
        copies = [message for message in messages for _ in range(3)]
        random.shuffle(copies)
        half = len(copies) // 2
        send(doorbell, copies[half:], changed)
        late = threading.Timer(random.uniform(0, 0.5), send, (doorbell, copies[:half], ()))
        late.daemon = True
        late.start()

    return sending


def mixed_fleet(workers: Workers, file: Path, *options: dict[str, Any]) -> list[WorkerProcess]:
    """A worker per options, at once; without any, one that continues in place and one that publishes every attempt."""
    for each in options or ({"continuation_budget": 1}, {"continuation_budget": 0}):
        workers.start(file, wait=False, **{"concurrency": 3, **each})
    for worker in workers.all:
        worker.wait_ready()
    return workers.all


def start_many(rival: Rival, count: int, workflow: str = "chain", **input: Any) -> list[str]:
    return [started.run_id for started in rival.run_many(workflow, [input] * count)]


def patiently(rival: Rival, read: Callable[[], Any]) -> Any:
    """A read that outlasts a database that is away."""
    for _ in range(100):
        try:
            return read()
        except DatabaseUnavailable:
            time.sleep(0.1)
    return read()


def wait_for_all(rival: Rival, run_ids: Iterable[str], timeout: float = 40.0) -> None:
    wanted = set(run_ids)

    def unfinished() -> list[tuple[str, str]]:
        with rival.database.autocommit() as connection:
            found = connection.execute(select(runs.c.id, runs.c.status).where(runs.c.status.not_in(RUN_TERMINAL)))
            return [(row.id, row.status) for row in found if row.id in wanted]

    try:
        wait_until(lambda: not patiently(rival, unfinished), timeout)
    except AssertionError:
        left = unfinished()
        raise AssertionError(f"{len(left)} runs are stuck: {_describe(rival, left[0][0])}") from None


def _describe(rival: Rival, run_id: str) -> str:
    state = rival.state(run_id)
    with rival.database.autocommit() as connection:
        row = connection.execute(select(runs, now().label("now")).where(runs.c.id == run_id)).mappings().one()
        open_steps = connection.execute(
            select(steps).where(steps.c.run_id == run_id, steps.c.status.not_in(STEP_TERMINAL))
        ).mappings()
        return f"{dict(row)}\n{[dict(s) for s in open_steps]}\n{state.attempts}\n{rival.history(run_id)}"


def assert_nothing_is_stuck(rival: Rival) -> None:
    """No open step of an ended run, no claimed step without a living executor."""
    open_steps = steps.c.status.not_in(STEP_TERMINAL)
    with rival.database.autocommit() as connection:
        of_ended = connection.scalar(
            select(func.count())
            .select_from(steps.join(runs, runs.c.id == steps.c.run_id))
            .where(open_steps, runs.c.status.in_(RUN_TERMINAL))
        )
        orphaned = connection.scalar(
            select(func.count())
            .select_from(steps)
            .where(
                steps.c.status == "running",
                steps.c.executor_id.not_in(select(executors.c.id).where(executors.c.expires_at > now())),
            )
        )
    assert (of_ended, orphaned) == (0, 0), "(open steps of ended runs, claimed steps without an executor)"
    assert_histories_are_complete(rival.database)


def assert_chain_is_right(rival: Rival, run_ids: Iterable[str], ledger: Ledger) -> None:
    """Every run completed with the right result; each step's result is that of one execution, and all that came
    after it saw that one and no other; losses have used up no attempts.
    """
    wanted = set(run_ids)
    executions: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in ledger.lines():
        executions[line.run_id, line.step].append(line)
    with rival.database.transaction() as connection:
        ended = {row.id: row for row in connection.execute(select(runs)) if row.id in wanted}
        accepted = {(row.run_id, row.path): row for row in connection.execute(select(steps)) if row.run_id in wanted}
    assert set(ended) == wanted
    assert {run_id: run.status for run_id, run in ended.items() if run.status != "completed"} == {}
    for run_id in wanted:
        assert ended[run_id].result["count"] == len(CHAIN_ATTEMPTS)
        before = "-"
        for step, attempts in CHAIN_ATTEMPTS.items():
            row, ran = accepted[run_id, step], executions[run_id, step]
            assert (row.status, row.attempts) == ("completed", attempts), (run_id, step)
            assert [line.nonce for line in ran].count(row.result["nonce"]) == 1, (run_id, step)
            assert {line.saw for line in ran} == {before}, (run_id, step)
            before = row.result["nonce"]
    assert_nothing_is_stuck(rival)
