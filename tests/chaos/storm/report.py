"""What a storm has done, as text for people and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tests.chaos.storm.faults import Happened
from tests.chaos.storm.verdict import Verdict

#: How many examples of one kind are printed.
SHOWN = 3


@dataclass
class Report:
    pool: str
    seed: int
    minutes: float
    verdict: Verdict
    faults: list[Happened] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    #: Seconds from the end of the faults until no run was open.
    settled: float | None = None
    #: The longest time from a fault's end to the next execution of any step.
    slowest_recovery: float = 0.0
    restarts: int = 0
    #: Problems of workers: ended by themselves, or not consuming at the end.
    workers: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    raw_errors: dict[str, str] = field(default_factory=dict)
    #: The harness itself failed: the run says nothing.
    broken: list[str] = field(default_factory=list)
    tracebacks: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        return not (self.verdict.problems or self.workers or self.raw_errors or self.broken)

    def as_json(self) -> dict[str, Any]:
        return {**_plain(self), "passed": self.passed, "problems": self.verdict.problems}

    def lines(self) -> list[str]:
        verdict, kinds = self.verdict, Counter(one.fault for one in self.faults)
        lines = [
            f"pool {self.pool}, seed {self.seed}, {self.minutes:g} minutes: {'PASSED' if self.passed else 'FAILED'}",
            f"  runs {verdict.runs} ({verdict.accepted} accepted, the rest children): {dict(verdict.statuses)}",
            f"  lost {len(verdict.lost)}, stuck {len(verdict.stuck)}, wrong {len(verdict.wrong)}, "
            f"left behind {len(verdict.left_behind)}",
            f"  faults {len(self.faults)}: {dict(sorted(kinds.items()))}",
            f"  worker processes started again after a fault: {self.restarts}; slowest recovery "
            f"{self.slowest_recovery:.1f} s; settled after {self._settled()}",
            f"  step executions {verdict.effects.executions} ({verdict.effects.during_faults} during faults), "
            f"repeated {sum(verdict.effects.repeated.values())}: "
            f"{dict(verdict.effects.repeated)}; not explained {len(verdict.effects.unexplained)}",
            f"  attempts that did not simply succeed: {dict(verdict.outcomes)}",
            f"  client calls refused and repeated: {dict(self.refused)}",
        ]
        lines += [f"  NOT TESTED: {name}: {why}" for name, why in self.skipped.items() if "NOT" in why]
        return lines + self._problem_lines()

    def _settled(self) -> str:
        return "never" if self.settled is None else f"{self.settled:.1f} s"

    def _problem_lines(self) -> list[str]:
        verdict = self.verdict
        groups = {
            "lost": verdict.lost,
            "stuck": verdict.stuck,
            "wrong": verdict.wrong,
            "left behind": verdict.left_behind,
            "not explained": verdict.effects.unexplained,
            "workers": self.workers,
            "harness": self.broken,
            "raw client errors": [f"{name}: {text}" for name, text in self.raw_errors.items()],
        }
        return [f"  {kind.upper()}: {example}" for kind, found in groups.items() for example in found[:SHOWN]]


def _plain(value: Any) -> Any:
    """As dicts and lists. `dataclasses.asdict` fails on counters before Python 3.12."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
