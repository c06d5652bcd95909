"""Every operator verb against runs that move, on Postgres and in many threads: no deadlock, each verb takes effect or
says why not, and every run ends as its history says. In the midst of it each verb is applied to a run of its own, where
it must take effect. RIVAL_STRESS_OPERATIONS makes it longer, RIVAL_STRESS_SEED another.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from sqlalchemy import select

from rival_client import NotPossible
from rival_client.broker.message import StepMessage
from rival_client.db.database_urls import libpq_url
from rival_client.db.run_tables import runs, steps
from rival_client.errors import RunNotFound
from rival_client.model.completion_token import CompletionToken
from rival_client.model.statuses import STEP_TERMINAL
from rival_workers import flow, for_each, parallel, step, wait_event_step
from tests.support.inline import CollectingDoorbell, Inline
from tests.support.threads import join_all
from tests.support.workers import wait_until

pytestmark = pytest.mark.usefixtures("locks_in_order")

#: Of each operator: a number of operations and not of seconds, so that a slow machine does the same.
OPERATIONS = int(os.environ.get("RIVAL_STRESS_OPERATIONS", "30"))
SEED = int(os.environ.get("RIVAL_STRESS_SEED", "1"))
_STALE = str(CompletionToken("gone", "f[0]/ask", 1))
WORKERS, OPERATORS, WIDTH = 6, 3, 150


class QueueDoorbell(CollectingDoorbell):
    """Hands the messages to threads."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: queue.Queue[StepMessage] = queue.Queue()

    def publish(self, step_messages: Sequence[StepMessage], changed: Sequence[str] = ()) -> bool:
        for one in step_messages:
            if one.countdown:
                threading.Timer(one.countdown, self.messages.put, [one]).start()
            else:
                self.messages.put(one)
        return True


class Fleet:
    """Threads that deliver messages until they are stopped; what they raise fails the test."""

    def __init__(self, inline: Inline, doorbell: QueueDoorbell) -> None:
        self.inline, self.doorbell = inline, doorbell
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(WORKERS)]
        self._threads.append(threading.Thread(target=self._keep, daemon=True))
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while not self.stop.is_set():
            try:
                self.inline.deliver(self.doorbell.messages.get(timeout=0.05))
            except queue.Empty:
                continue
            except Exception as error:
                self.errors.append(error)

    def _keep(self) -> None:
        while not self.stop.wait(0.2):
            self.inline.keeper.run_once()

    def close(self) -> None:
        self.stop.set()
        join_all(self._threads)


def _define(inline: Inline, tokens: deque[str]) -> list[str]:
    two = [step(lambda: 1, name="a"), step(lambda: 2, name="b")]
    wide = for_each("f", items=lambda: list(range(WIDTH)), do=two, concurrency=8)
    inline.define("wide", wide, step(lambda: 3, name="last"))
    lanes = [step(lambda: 1, name="x"), step(lambda: 2, name="y"), wait_event_step("go", name="w")]
    inline.define("joined", for_each("f", items=lambda: list(range(20)), do=[parallel("p", lanes)], concurrency=4))
    inline.define("child", flow("c", register=False)(lambda ctx: ctx.step(int)))

    def body(ctx: Any) -> Any:
        found = [ctx.step(int) for _ in range(20)]
        return [*found, ctx.call("child", {}), ctx.await_event("go", timeout=0.3), ctx.step(int)]

    inline.define("flowing", flow("fl", register=False)(body))
    inline.define("asking", _asking(tokens), step(lambda: 3, name="last"))
    alone = step(lambda: None, name="ask", execution_mode="external", max_attempts=3, backoff="none")
    inline.define("alone", step(lambda: 1, name="first"), alone, step(lambda: 2, name="last"))
    inline.define("listening", wait_event_step("alone", key=lambda run: run.run_id, name="w"))
    return ["wide", "joined", "flowing", "asking"]


def _asking(tokens: deque[str]) -> Any:
    """Lanes of external steps, with a step behind each."""

    def ask(ctx: Any) -> None:
        tokens.append(ctx.completion_token)

    asked = step(ask, name="ask", execution_mode="external", max_attempts=3, backoff="none")
    return for_each("f", items=lambda: list(range(24)), do=[asked, step(lambda: 1, name="b")], concurrency=8)


def _asked(inline: Inline, which: Any) -> list[str]:
    columns = select(steps.c.run_id, steps.c.path, steps.c.execution_token)
    waiting = (steps.c.kind == "external", steps.c.status == "waiting", which)
    with inline.store.database.autocommit() as connection:
        found = connection.execute(columns.where(*waiting)).all()
    return [str(CompletionToken(row.run_id, row.path, row.execution_token - 1)) for row in found]


def _verbs(inline: Inline, dice: random.Random, tokens: deque[str]) -> dict[str, Callable[[str, str], object]]:
    why, rival = {"reason": "stress"}, inline.rival

    def a_token() -> str:
        """Of a step that waits for an answer, or one that was handed out before and may be stale."""
        known = _asked(inline, steps.c.run_id.not_in(OWN)) if dice.random() < 0.7 else [*tokens]
        return dice.choice(known or [_STALE])

    return {
        "cancel": lambda run_id, path: rival.cancel(run_id),
        "pause": lambda run_id, path: rival.pause(run_id),
        "resume": lambda run_id, path: rival.resume(run_id),
        "retry": lambda run_id, path: rival.retry(run_id),
        "rewind": lambda run_id, path: rival.rewind(run_id, path),
        "skip": lambda run_id, path: rival.skip(run_id, path, **why),
        "set_result": lambda run_id, path: rival.set_result(run_id, path, [1], **why),
        "send_event": lambda run_id, path: rival.send_event("go", 1, delivery=dice.choice(["one", "all"])),
        "complete_step": lambda run_id, path: rival.complete_step(a_token(), 1),
        "fail_step": lambda run_id, path: rival.fail_step(a_token(), "no", retry=dice.random() < 0.9),
        "heartbeat_step": lambda run_id, path: rival.heartbeat_step(a_token(), 1),
        "bulk": lambda run_id, path: rival.bulk(dice.choice(["pause", "resume"]), [run_id]),
    }


def _operate(
    inline: Inline, seed: int, run_ids: list[str], tokens: deque[str], counts: Counter[str], bad: list[Any]
) -> None:
    dice = random.Random(seed)
    verbs = _verbs(inline, dice, tokens)
    for number in range(OPERATIONS):
        run_id, verb = dice.choice(run_ids), list(verbs)[number % len(verbs)]
        with inline.store.database.autocommit() as connection:
            paths = list(connection.scalars(select(steps.c.path).where(steps.c.run_id == run_id))) or ["f"]
        try:
            counts[f"{verb}: {verbs[verb](run_id, dice.choice(paths)) is not False}"] += 1
        except (NotPossible, RunNotFound):
            counts[f"{verb}: refused"] += 1
        except Exception as error:
            bad.append((verb, error))
        time.sleep(dice.uniform(0, 0.02))


#: Runs that only `_apply_each_verb` touches: what they are like in the end.
OWN = {
    "own-cancel": "cancelled",
    "own-pause": "completed",
    "own-rewind": "completed",
    "own-complete": "completed",
    "own-fail": "failed",
    "own-event": "completed",
}


def _apply_each_verb(inline: Inline) -> None:
    """Each verb takes effect on a run that waits for it, whatever happens to the others meanwhile."""
    rival = inline.rival
    for run_id in OWN:
        rival.run("listening" if run_id == "own-event" else "alone", {}, run_id=run_id)
    tokens = {run_id: _wait_for_token(inline, run_id) for run_id in OWN if run_id != "own-event"}
    assert rival.cancel("own-cancel")
    assert not rival.complete_step(tokens["own-cancel"], 1), "its token is stale"
    assert rival.pause("own-pause")
    assert rival.resume("own-pause")
    assert rival.rewind("own-rewind", "first").opened == ("first",)
    assert rival.complete_step(tokens["own-pause"], 1)
    assert rival.complete_step(tokens["own-complete"], 1)
    assert rival.fail_step(tokens["own-fail"], "no", retry=False)
    rival.send_event("alone", 1, key="own-event")
    assert rival.complete_step(_wait_for_token(inline, "own-rewind"), 1)


def _wait_for_token(inline: Inline, run_id: str) -> str:
    found = list[str]()
    wait_until(lambda: found.extend(_asked(inline, steps.c.run_id == run_id)) or found, 60, f"{run_id} waits")
    return found[0]


def _deadlocks(url: str) -> int:
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        found = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert found is not None
    return int(found[0])


def _finish(inline: Inline, tokens: deque[str]) -> None:
    end = time.monotonic() + 60
    while open_ones := [run for run in inline.rival.runs(limit=500) if not run.is_terminal]:
        assert time.monotonic() < end, [(run.run_id, run.status, inline.rival.state(run.run_id)) for run in open_ones]
        for run in open_ones:
            inline.rival.resume(run.run_id)
        inline.rival.send_event("go", 1, delivery="all")
        while tokens:
            inline.rival.complete_step(tokens.popleft(), 1)
        time.sleep(0.2)


@pytest.mark.slow
def test_every_verb_beside_moving_runs_takes_effect_and_never_deadlocks(database_url: str) -> None:
    before = _deadlocks(database_url)
    doorbell = QueueDoorbell()
    inline = Inline(database_url, doorbell=doorbell, ring_grace=1.0)
    tokens: deque[str] = deque()
    run_ids = [f"{name}-{n}" for name in _define(inline, tokens) for n in range(3)]
    for run_id in run_ids:
        inline.rival.run(run_id.partition("-")[0], {}, run_id=run_id)
    fleet = Fleet(inline, doorbell)
    counts: Counter[str] = Counter()
    bad: list[Any] = []
    operators = [
        threading.Thread(target=_operate, args=(inline, SEED * 100 + n, run_ids, tokens, counts, bad))
        for n in range(OPERATORS)
    ]
    for one in operators:
        one.start()
    _apply_each_verb(inline)
    for one in operators:
        one.join()
    _finish(inline, tokens)
    fleet.close()
    assert (bad, fleet.errors) == ([], [])
    with inline.store.database.autocommit() as connection:
        still_open = connection.execute(
            select(steps.c.run_id, steps.c.path)
            .join(runs, runs.c.id == steps.c.run_id)
            .where(runs.c.completed_at.is_not(None), steps.c.status.not_in(STEP_TERMINAL))
        ).all()
    assert still_open == []
    assert {run_id: inline.rival.state(run_id).status for run_id in OWN} == OWN
    inline.close()
    assert _deadlocks(database_url) == before
    assert counts.total() == OPERATIONS * OPERATORS, counts
