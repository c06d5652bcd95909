"""Rival alone: what is left of limits while workers are killed and messages are lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import psycopg

from benchmarks.disciplines import LIMIT_S, Warm, fresh_key
from benchmarks.fleet import wait_until
from benchmarks.lines import emit
from benchmarks.loads import Load
from benchmarks.marks import marks
from rival_client import RunFilter
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_workers import limit
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, EndRun
from rival_workers.store import open_store
from rival_workers.store.claim_records import Claim, Claimed

SLOTS, STEP_S, OFTEN_S = 5, 0.1, 2.0
_SLOT = limit("slot", 1)


@dataclass(frozen=True)
class Use:
    """When an attempt has used its slot, seconds since the epoch."""

    began: float
    ended: float
    #: Its worker was killed: it worked until then, and the slot came back later.
    is_lost: bool


def measure_slot_use(warm: Warm, load: Load) -> None:
    """The part of the time in which attempts of live workers used the five slots of a limit, and the most that were in
    use at once: while one of three workers is killed in the middle, and while one is killed every two seconds."""
    for name, kill in (("one_kill", _kill_one), ("kills", _kill_often)):
        key, count = fresh_key("five"), int(load.kills_s * SLOTS / STEP_S)
        ids = [one.run_id for one in warm.system.producer.run_many("fives", [{"key": key}] * count)]
        with warm.fleet.released():
            _wait_for_starts(warm, ids)
            began = time.time()
            killed = kill(warm, load.kills_s)
            ended = time.time()
            warm.system.producer.bulk("cancel", RunFilter(workflow="fives"))
            warm.fleet.replace_dead()
        uses = _uses(warm, ids)
        emit(warm.system.name, f"slots_at_once/{name}", [float(_most_at_once(uses))])
        emit(warm.system.name, f"slots_used/{name}", [_used(uses, killed, began, ended)])


def _wait_for_starts(warm: Warm, ids: list[str]) -> None:
    query = "SELECT count(*) FROM rival_steps WHERE run_id = ANY(%s) AND started_at IS NOT NULL"
    with psycopg.connect(warm.system.url, autocommit=True) as connection:
        wait_until(lambda: connection.execute(query, [ids]).fetchone() >= (SLOTS,), LIMIT_S, "all slots in use")


def _kill_one(warm: Warm, seconds: float) -> list[float]:
    time.sleep(seconds / 2)
    killed = warm.fleet.kill_owner(warm.fleet.pids()[0])
    time.sleep(seconds / 2)
    return [killed]


def _kill_often(warm: Warm, seconds: float) -> list[float]:
    began, killed = time.monotonic(), []
    while time.monotonic() - began < seconds:
        time.sleep(max(0.0, began + OFTEN_S * (len(killed) + 1) - time.monotonic()))
        pids = warm.fleet.pids()
        killed.append(warm.fleet.kill_owner(pids[len(killed) % len(pids)]))
        warm.fleet.replace_dead()
    return killed


# A step keeps the start of a lost attempt until its next one starts. Only the attempt says when it ended.
_USES = """
    SELECT extract(epoch FROM started_at), extract(epoch FROM ended_at), outcome = 'lost'
    FROM rival_attempts WHERE run_id = ANY(%(ids)s) AND started_at IS NOT NULL
    UNION ALL SELECT extract(epoch FROM started_at), extract(epoch FROM coalesce(completed_at, now())), false
    FROM rival_steps AS step WHERE run_id = ANY(%(ids)s) AND started_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM rival_attempts AS attempt
        WHERE attempt.run_id = step.run_id AND attempt.path = step.path AND attempt.started_at = step.started_at
    )
"""


def _uses(warm: Warm, ids: Sequence[str]) -> list[Use]:
    with psycopg.connect(warm.system.url, autocommit=True) as connection:
        found = connection.execute(_USES, {"ids": list(ids)}).fetchall()
    return [Use(float(began), float(ended), lost) for began, ended, lost in found]


def _most_at_once(uses: Sequence[Use]) -> int:
    moments = sorted([(one.ended, -1) for one in uses] + [(one.began, 1) for one in uses])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def _used(uses: Sequence[Use], killed: Sequence[float], began: float, ended: float) -> float:
    total = 0.0
    for one in uses:
        end = min((at for at in killed if at >= one.began), default=one.ended) if one.is_lost else one.ended
        total += max(0.0, min(end, ended) - max(one.began, began))
    return total / (SLOTS * (ended - began))


# -- a message that is lost ------------------------------------------------------------------------------------------


def measure_lost_messages(warm: Warm, load: Load) -> None:
    """Seconds from the commit that lets a waiting step through to its start, if the message about it is lost. This
    process holds the only slot as a worker does, and does not publish what its finish has granted."""
    system, seconds = warm.system, []
    with closing(open_store(system.url)) as store, warm.fleet.released():
        for _ in range(load.takeovers):
            key = fresh_key("lost")
            claimed = store.claim_step(_running_step(system.url, key), None, "bench", limits=[_SLOT])
            assert isinstance(claimed, Claimed), claimed
            waiting = system.start("takes", key)
            wait_until(lambda: _waits(system.url), LIMIT_S, "the ticket of the next step")
            finished = store.finish_step(
                Claim(key, "work", claimed.token), End("completed", Json("null")), _COMPLETES, claim_for=None
            )
            granted = time.time()
            assert finished is not None
            assert len(finished.grants) == 1, finished
            wait_until(lambda key=key: len(marks("slot", key)) == 1, LIMIT_S, "the start of the step")
            seconds.append(marks("slot", key)[0].at - granted)
            system.wait(waiting)
    emit(system.name, "lost_message_s", seconds)


def _running_step(url: str, run_id: str) -> Claim:
    """A run whose first step is open; no message says so."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO rival_runs (id, workflow, version, status, token, created_at, started_at) "
            "VALUES (%s, 'takes', 'v', 'running', 1, now(), now())",
            [run_id],
        )
        connection.execute(
            "INSERT INTO rival_steps (run_id, path, kind, status, execution_token, timeout_token, created_at) "
            "VALUES (%s, 'work', 'step', 'pending', 1, 0, now())",
            [run_id],
        )
    return Claim(run_id, "work", 1)


def _waits(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SELECT 1 FROM rival_tickets WHERE granted_at IS NULL").fetchone() is not None


def _limited(path: str) -> StepConfig:
    return StepConfig(concurrency_limit=(_SLOT,))


_COMPLETES = Advance((EndRun("completed"),)).with_options(_limited)
