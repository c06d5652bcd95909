"""Every field of a policy once, on one fleet of real processes: many small workflows at the same time. What each field
does in detail is in tests/contract/test_policy_fields.py.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rival_client import Rival, RunState
from rival_client.model.policies.option_fields import FIELDS
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

COMMON = """
import os
import time
import uuid
from pathlib import Path
from rival_workers import StepError, breaker, rate, step, value

def works(ctx):
    return uuid.uuid4().hex

def naps(ctx):
    time.sleep(0.2)

def hangs(ctx):
    time.sleep(1)

def spins(ctx):
    while ctx.run.attempt == 1:
        pass
    return os.getpid()

def fails(ctx):
    raise ValueError("boom")

def asks(ctx):
    raise StepError("again", behavior="retry", retry_after=ctx.metadata.get("retry_after"))

def logs(ctx):
    ctx.log.info("a")
    ctx.log.warning("b")

def reports(ctx):
    return ctx.metadata

def begins(ctx):
    Path(__file__).with_name("token").write_text(ctx.completion_token)
"""
#: The steps of the workflow that is named after the field.
STEPS = {
    "timeout": "step(hangs, timeout=0.2)",
    "on_timeout": "step(spins, timeout=0.3, on_timeout='retry', max_attempts=2, backoff='none', kill_on_timeout=True)",
    "kill_on_timeout": "step(spins, timeout=0.3, kill_on_timeout=True, max_retries=1, backoff='none')",
    "max_retries": "step(fails, max_retries=2, backoff='none')",
    "max_attempts": "step(asks, max_attempts=2, backoff='none')",
    "retry_on": "step(fails, max_retries=2, retry_on=[KeyError])",
    "no_retry_on": "step(fails, max_retries=2, no_retry_on=[ValueError])",
    "backoff": "step(fails, max_retries=3, base_delay=0.01, backoff='exponential')",
    "base_delay": "step(fails, max_retries=1, base_delay=0.03)",
    "max_delay": "step(fails, max_retries=1, base_delay=60, max_delay=0.02)",
    "max_retry_after": "step(asks, max_retries=1, backoff='none', metadata={'retry_after': 900}, max_retry_after=0.04)",
    "heartbeat": "step(hangs, heartbeat=0.2)",
    "execution_mode": "step(begins, execution_mode='external'), hangs, step(works, execution_mode='inline')",
    "deadline": "step(hangs, deadline=0.2)",
    "delay": "step(works, delay=0.3)",
    "scheduled_at": "step(works)",
    "queue_timeout": "step(works, queue='nowhere', queue_timeout=0.2)",
    "queue": "step(works, queue='gpu')",
    "priority": "step(works, priority='low')",
    "on_failure": "step(fails, on_failure='skip')",
    "fallback": "step(fails, fallback=value('instead'))",
    "retry_budget": "step(fails, max_retries=5, retry_budget=1, backoff='none')",
    "concurrency_limit": "step(naps, concurrency_limit=1)",
    "rate_limit": "step(works, rate_limit=rate(1, per=0.5))",
    "circuit_breaker": "step(fails, circuit_breaker=breaker('bank', failures=1))",
    "idempotency_key": "step(works, idempotency_key='k:{input.x}')",
    "idempotency_ttl": "step(works, idempotency_key='k:{input.x}', idempotency_ttl=0.2)",
    "idempotency_scope": "*(step(works, name=name, idempotency_key='k:{run.id}', idempotency_scope='workflow')"
    " for name in 'st')",
    "metadata": "step(reports, metadata={'team': 'x'})",
    "log_level": "step(logs, log_level='warning')",
    "telemetry_prefix": "step(works, telemetry_prefix='shop')",
}

#: Of these, two runs are started at the same time.
TWICE = ("concurrency_limit", "rate_limit", "idempotency_key")


def error_of(state: RunState) -> Any:
    return None if state.error is None else state.error["type"]


def attempts_of(state: RunState) -> int:
    return state.steps[0].attempts


def waited(state: RunState) -> float:
    [row] = state.steps
    assert row.started_at is not None
    return (row.started_at - row.created_at).total_seconds()


#: What the state of the first run shows.
SHOWS: dict[str, tuple[Callable[[RunState], Any], Any]] = {
    "timeout": (error_of, "StepTimeout"),
    "on_timeout": (lambda state: (state.status, attempts_of(state)), ("completed", 2)),
    "kill_on_timeout": (lambda state: (state.status, attempts_of(state)), ("completed", 2)),
    "max_retries": (attempts_of, 3),
    "max_attempts": (attempts_of, 2),
    "retry_on": (attempts_of, 1),
    "no_retry_on": (attempts_of, 1),
    "heartbeat": (error_of, "HeartbeatMissed"),
    "deadline": (error_of, "DeadlineExceeded"),
    "delay": (lambda state: waited(state) >= 0.3, True),
    "queue_timeout": (error_of, "QueueTimeout"),
    "queue": (lambda state: (state.status, state.steps[0].queue), ("completed", "gpu")),
    "priority": (lambda state: (state.status, state.steps[0].priority), ("completed", "low")),
    "on_failure": (lambda state: (state.status, state.steps[0].status), ("completed", "skipped")),
    "fallback": (lambda state: state.steps[0].result, "instead"),
    "retry_budget": (attempts_of, 2),
    "idempotency_scope": (lambda state: len({row.result for row in state.steps}), 1),
    "metadata": (lambda state: state.steps[0].result, {"team": "x"}),
    "max_retry_after": (attempts_of, 2),
}
#: The delays before retries.
DELAYS = {"backoff": [0.01, 0.02, 0.04], "base_delay": [0.03], "max_delay": [0.02], "max_retry_after": [0.04]}


def test_every_field_of_a_policy_has_its_effect_on_a_fleet(rival: Rival, workers: Workers, tmp_path: Path) -> None:
    assert STEPS.keys() == FIELDS.keys()
    for name, steps in STEPS.items():
        source = f"{COMMON}\nname = {name!r}\nsteps = [{steps}]\n"
        if name == "telemetry_prefix":
            label = f"Path({str(tmp_path / 'label')!r})"
            source += f"hooks = {{'before_attempt': lambda event: {label}.write_text(event.label)}}\n"
        (tmp_path / f"{name}.py").write_text(source)
    workers.start(tmp_path, pool="prefork", concurrency=4, queues="default,gpu")
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    rules: Any = {"scheduled_at": [("works", {"scheduled_at": at})]}
    started = {name: rival.run(name, {"x": 1}, f"{name}-1", policies=rules.get(name)) for name in STEPS}
    second = {name: rival.run(name, {"x": 1}, f"{name}-2") for name in TWICE}
    wait_until(lambda: [one.status for one in rival.state("execution_mode-1").steps] == ["waiting"], 60)
    assert rival.complete_step((tmp_path / "token").read_text(), 42)
    for one in (*started.values(), *second.values()):
        one.wait(timeout=90)
    states = {name: rival.state(one.run_id) for name, one in started.items()}
    for name, (shows, expected) in SHOWS.items():
        assert (name, shows(states[name])) == (name, expected)
    for name, expected in DELAYS.items():
        delays = [one.detail["delay"] for one in rival.history(f"{name}-1") if one.what == "retried"]
        assert (name, delays) == (name, expected)
    others(rival, states, at)
    assert (tmp_path / "label").read_text() == "shop.telemetry_prefix.works"


def others(rival: Rival, states: dict[str, RunState], at: dt.datetime) -> None:
    """What needs two runs, or more than the state of one."""
    pairs = {name: [row for n in "12" for row in rival.state(f"{name}-{n}").steps] for name in TWICE}
    one, other = sorted(pairs["concurrency_limit"], key=lambda row: row.started_at)
    assert one.completed_at <= other.started_at
    one, other = sorted(pairs["rate_limit"], key=lambda row: row.started_at)
    assert (other.started_at - one.started_at).total_seconds() >= 0.5
    assert len({row.result for row in pairs["idempotency_key"]}) == 1
    assert states["execution_mode"].steps[0].result == 42
    # The step before has used up the continuation budget of one second.
    opened = [one.what for one in rival.history("execution_mode-1") if one.path == "works"]
    assert opened == ["claimed", "completed"]
    assert states["scheduled_at"].steps[0].started_at >= at
    assert [one.message for one in rival.logs("log_level-1")] == ["b"]
    broken = rival.run("circuit_breaker", {"x": 1}).wait(timeout=60)
    assert broken.error is not None
    assert broken.error["type"] == "BreakerOpen"
    first = states["idempotency_ttl"].steps[0].result
    wait_until(lambda: rival.run("idempotency_ttl", {"x": 1}).get(timeout=60) != first, 60)


WAITS = """
import time
from pathlib import Path

def waits():
    Path(__file__).with_name("began").touch()
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.02)
    raise ValueError("boom")

name = "waits"
steps = [waits]
"""


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("prefork", "threads"))
def test_a_rule_that_is_set_while_an_attempt_runs_does_not_change_that_attempt(
    rival: Rival, workers: Workers, tmp_path: Path, pool: str
) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    workers.start(tmp_path, pool=pool, concurrency=2)
    first = rival.run("waits", run_id="first")
    wait_until((tmp_path / "began").exists, 60, "the attempt's begin")
    rival.set_policy("waits", {"max_retries": 1, "backoff": "none"})
    # The worker knows the rule when another attempt has had it.
    (tmp_path / "began").unlink()
    second = rival.run("waits", run_id="second", delay=1.5)
    wait_until((tmp_path / "began").exists, 60, "the other attempt's begin")
    (tmp_path / "go").touch()
    assert [one.wait(timeout=60).status for one in (first, second)] == ["failed", "failed"]
    assert [attempts_of(one.state()) for one in (first, second)] == [1, 2]
