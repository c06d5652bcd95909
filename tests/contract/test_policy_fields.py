"""Every field of a policy has its effect, on every store: given to the step itself, and by a rule of the run where a
rule can have it. One table: a field, its value, a situation, and what is observed then.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rival_client.model.policies.option_fields import FIELDS
from rival_client.model.policies.run_policies import NOT_IN_RULES
from rival_workers import StepError, breaker, rate, step, value
from rival_workers.runtime.attempt import time_limits
from tests.support.inline import Inline
from tests.support.workers import wait_until


@dataclass
class Case:
    """One workflow with a step `s` that has the option; `functions` are what the step does in its attempts."""

    inline: Inline
    layer: str
    options: dict[str, Any]
    calls: Counter[str] = field(default_factory=Counter)

    def define(self, function: Callable[..., Any], *more: Any, **whole: Any) -> None:
        own = self.options if self.layer == "step" else {}
        self.inline.define("w", step(function, name="s", **own), *more, **whole)

    def start(self, run_id: str = "r", its_input: Any = None) -> None:
        rules = [("s", self.options)] if self.layer == "run" else None
        self.inline.rival.run("w", its_input, run_id, policies=rules)
        self.inline.drain()

    def run(self, function: Callable[..., Any], its_input: Any = None, run_id: str = "r") -> Any:
        """The row of the step, when nothing is left to do at this moment."""
        if self.inline.registry.newest("w") is None:
            self.define(function)
        self.start(run_id, its_input)
        return self.row(run_id)

    def row(self, run_id: str = "r", path: str = "s") -> Any:
        return {one.path: one for one in self.inline.rival.state(run_id).steps}[path]

    def later(self, seconds: float) -> Any:
        self.inline.time_passes(seconds)
        self.inline.keeper.run_once()
        self.inline.drain()
        return self.row()

    def hangs(self, seconds: float) -> Callable[[], str]:
        """The first attempt takes so long, by the clock of the database, and a keeper looks at it."""

        def work() -> str:
            self.calls["work"] += 1
            if self.calls["work"] == 1:
                self.inline.time_passes(seconds)
                self.inline.keeper.run_once()
            return "late"

        return work

    def raises(self, error: BaseException) -> Callable[[], None]:
        def work() -> None:
            self.calls["work"] += 1
            raise error

        return work

    def counts(self) -> int:
        self.calls["work"] += 1
        return self.calls["work"]

    def delays(self, times: int = 1, error: BaseException | None = None) -> list[float]:
        """Of the retries of a step that fails."""
        self.run(self.raises(error or ValueError("boom")))
        for _ in range(times - 1):
            self.later(100)
        return [one.detail["delay"] for one in self.inline.rival.history("r") if one.what == "retried"]

    def attempts(self, error: BaseException) -> tuple[str, int]:
        row = self.run(self.raises(error))
        return row.status, self.calls["work"]


AGAIN = StepError("again", behavior="retry")
BOOM = ValueError("boom")
NONE: dict[str, Any] = {"backoff": "none"}


def one_after_the_other(case: Case) -> list[str]:
    """The statuses of a second run while the first one runs, and at the end."""
    seen: list[str] = []

    def work(ctx: Any) -> None:
        if ctx.run.run_id == "r":
            case.start("second")
            seen.append(case.row("second").status)

    case.run(work)
    return [*seen, case.row("second").status]


def killed(case: Case) -> Any:
    """The kill itself is tested with processes, in tests/chaos."""
    found: list[Any] = []
    case.inline.process.coordinator.limits.may_kill = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_limits.os, "kill", lambda *about: found.append(about))
        case.run(lambda: wait_until(lambda: found, 30))
    return len(found)


def in_place(case: Case) -> Any:
    """The messages of the steps of a run, without a continuation budget. External steps: test_external_steps.py."""
    object.__setattr__(case.inline.coordinator.settings, "continuation_budget", 0.0)
    own = case.options if case.layer == "step" else {}
    case.inline.define("w", step(case.counts, name="before"), step(case.counts, name="s", **own))
    rules = [("s", case.options)] if case.layer == "run" else None
    case.inline.rival.run("w", None, "r", policies=rules)
    return [message.path for message in case.inline.drain()]


def deadline(case: Case) -> Any:
    """A retry that would begin after it is not made."""
    row = case.run(case.raises(BOOM))
    return row.status, row.error["type"], case.calls["work"]


def starts_later(case: Case) -> Any:
    case.run(case.counts)
    return [case.calls["work"], case.later(50) and case.calls["work"], case.later(100) and case.calls["work"]]


def reused(case: Case) -> Any:
    return [case.run(case.counts, {"x": 1}, run_id).result for run_id in ("r", "r2")]


def reused_after_a_minute(case: Case) -> Any:
    first = case.run(case.counts, {"x": 1}).result
    case.later(61)
    return first, case.run(case.counts, {"x": 1}, "r2").result


def reused_by_another_step(case: Case) -> Any:
    """Another step of the workflow has the same key."""
    shared = {"idempotency_key": "k:{input.x}", "idempotency_scope": "workflow"}
    case.define(case.counts, step(case.counts, name="t", **shared))
    case.start("r", {"x": 1})
    return case.row().result, case.row(path="t").result


def broken(case: Case) -> Any:
    """A second run, after a failure has opened the breaker."""
    errors = [case.run(case.raises(BOOM), run_id=run_id).error["type"] for run_id in ("r", "r2")]
    return errors, case.calls["work"]


def logged(case: Case) -> Any:
    def work(log: Any) -> None:
        log.info("a")
        log.warning("b")

    case.run(work)
    return [one.message for one in case.inline.rival.logs("r")]


def labelled(case: Case) -> Any:
    labels: list[str] = []
    case.define(case.counts, hooks={"before_attempt": lambda event: labels.append(event.label)})
    case.start()
    return labels


#: field: (options, situation, what is observed). Every field of the model is here.
TABLE: dict[str, tuple[dict[str, Any], Callable[[Case], Any], Any]] = {
    "timeout": ({"timeout": 60}, lambda case: case.run(case.hangs(61)).error["type"], "StepTimeout"),
    "on_timeout": (
        {"timeout": 60, "on_timeout": "retry", "max_attempts": 2, **NONE},
        lambda case: (case.run(case.hangs(61)), case.later(5).status, case.calls["work"])[1:],
        ("completed", 2),
    ),
    "kill_on_timeout": ({"timeout": 0.05, "kill_on_timeout": True}, killed, 1),
    "max_retries": ({"max_retries": 2, **NONE}, lambda case: case.attempts(BOOM), ("failed", 3)),
    "max_attempts": ({"max_attempts": 2, **NONE}, lambda case: case.attempts(AGAIN), ("failed", 2)),
    "retry_on": ({"max_retries": 2, "retry_on": ["KeyError"]}, lambda case: case.attempts(BOOM), ("failed", 1)),
    "no_retry_on": ({"max_retries": 2, "no_retry_on": ["ValueError"]}, lambda case: case.attempts(BOOM), ("failed", 1)),
    "backoff": (
        {"max_retries": 3, "base_delay": 1, "backoff": "exponential"},
        lambda case: case.delays(3),
        [1, 2, 4],
    ),
    "base_delay": ({"max_retries": 1, "base_delay": 7}, lambda case: case.delays(), [7]),
    "max_delay": ({"max_retries": 1, "base_delay": 7, "max_delay": 3}, lambda case: case.delays(), [3]),
    "max_retry_after": (
        {"max_retries": 1, "max_retry_after": 60},
        lambda case: case.delays(error=StepError("busy", behavior="retry", retry_after=900)),
        [60],
    ),
    "heartbeat": ({"heartbeat": 60}, lambda case: case.run(case.hangs(61)).error["type"], "HeartbeatMissed"),
    "execution_mode": ({"execution_mode": "inline"}, in_place, [None, "before"]),
    "deadline": (
        {"deadline": 60, "max_retries": 5, "base_delay": 100, "max_delay": 100},
        deadline,
        ("failed", "ValueError", 1),
    ),
    "delay": ({"delay": 60}, starts_later, [0, 0, 1]),
    "scheduled_at": ({"scheduled_at": None}, starts_later, [0, 0, 1]),
    "queue_timeout": (
        {"queue": "gpu", "queue_timeout": 60},
        lambda case: (case.run(case.counts).status, case.later(61).error["type"]),
        ("pending", "QueueTimeout"),
    ),
    "queue": ({"queue": "gpu"}, lambda case: (case.run(case.counts).status, case.row().queue), ("pending", "gpu")),
    "priority": ({"priority": "low"}, lambda case: case.run(case.counts).priority, "low"),
    "on_failure": ({"on_failure": "skip"}, lambda case: case.run(case.raises(BOOM)).status, "skipped"),
    "fallback": ({"fallback": value("instead")}, lambda case: case.run(case.raises(BOOM)).result, "instead"),
    "retry_budget": (
        {"max_retries": 5, "retry_budget": 1, **NONE},
        lambda case: case.attempts(BOOM),
        ("failed", 2),
    ),
    "concurrency_limit": ({"concurrency_limit": 1}, one_after_the_other, ["waiting", "completed"]),
    "rate_limit": ({"rate_limit": rate(1, per=3600)}, one_after_the_other, ["waiting", "waiting"]),
    "circuit_breaker": (
        {"circuit_breaker": breaker("b", failures=1)},
        broken,
        (["ValueError", "BreakerOpen"], 1),
    ),
    "idempotency_key": ({"idempotency_key": "k:{input.x}"}, reused, [1, 1]),
    "idempotency_ttl": ({"idempotency_key": "k:{input.x}", "idempotency_ttl": 60}, reused_after_a_minute, (1, 2)),
    "idempotency_scope": (
        {"idempotency_key": "k:{input.x}", "idempotency_scope": "workflow"},
        reused_by_another_step,
        (1, 1),
    ),
    "metadata": ({"metadata": {"team": "x"}}, lambda case: case.run(lambda ctx: ctx.metadata).result, {"team": "x"}),
    "log_level": ({"log_level": "warning"}, logged, ["b"]),
    "telemetry_prefix": ({"telemetry_prefix": "shop"}, labelled, ["shop.w.s"]),
}
CASES = [(name, layer) for name in TABLE for layer in ("step", "run") if layer == "step" or name not in NOT_IN_RULES]


def test_every_field_is_in_the_table() -> None:
    assert set(TABLE) == set(FIELDS)
    assert {name for name, layer in CASES if layer == "run"} == set(FIELDS) - NOT_IN_RULES


@pytest.mark.parametrize(("name", "layer"), CASES, ids=[f"{name}-{layer}" for name, layer in CASES])
def test_a_field_has_its_effect(inline: Inline, name: str, layer: str) -> None:
    options, situation, expected = TABLE[name]
    if name == "scheduled_at":
        now = dt.datetime.now(dt.UTC) if inline.clock is None else inline.clock.now
        options = {"scheduled_at": now + dt.timedelta(seconds=60)}
    assert situation(Case(inline, layer, options)) == expected
