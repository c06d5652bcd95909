"""Repeated side effects, and whether the history explains each of them.

The rule: an execution needs a claim. Every line of the ledger must belong to a `claimed` entry of its step by the same
process, not later than it, and no claim may have two lines. Every claim but a step's first needs a cause in the history
before it: a takeover, a retry, a hand-back, an operator. In a flow the claim is that of the flow. There a checkpoint
may be executed again if the flow's attempt was lost in between, or if the checkpoint was retried; a flow that was
merely suspended must not repeat anything.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rival_client.model.run_entries import HistoryEntry
from tests.chaos.storm.ledger import Execution

#: Entries that put a step back to its beginning, and what they mean.
LOSSES = {
    "taken_over": "its executor was lost",
    "handed_back": "handed back",
    "retry_run": "an operator's retry",
    "rewind_run": "an operator's rewind",
}
#: Entries after which a step may be claimed again.
CAUSES = {*LOSSES, "retried", "woken", "suspended", "completed_externally", "failed_externally", "continued"}
#: Entries about the whole run.
OF_THE_RUN = ("retry_run", "rewind_run")
#: In an async flow a checkpoint's path names its task; the load gives each checkpoint a name of its own.
_LANE = re.compile(r"#[^:/]*:")
#: The clocks are the same; a claim's time is that of its statement.
MARGIN = 0.005


@dataclass
class Claim:
    number: int
    at: float
    pid: int
    cause: str | None
    executed: Counter[str] = field(default_factory=Counter)


@dataclass
class Effects:
    """What the ledger and the history of all runs say together."""

    executions: int = 0
    #: How many of them began before the last fault was over.
    during_faults: int = 0
    #: How often a step was executed again, by cause.
    repeated: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def add(self, executions: Sequence[Execution], history: Sequence[HistoryEntry]) -> None:
        """One run."""
        self.executions += len(executions)
        run = _Run(history)
        for one in executions:
            explanation = run.explain(one)
            if explanation is None:
                self.unexplained.append(f"run {one.run_id} {one.path}: executed by process {one.pid} at {one.at:.3f}")
            elif explanation:
                self.repeated[explanation] += 1


class _Run:
    def __init__(self, history: Sequence[HistoryEntry]) -> None:
        self._claims = _claims(history)
        #: Of each step, why it was retried: one explanation for each time.
        self._retries: defaultdict[str, list[str]] = defaultdict(list)
        for entry in history:
            if entry.what == "retried":
                self._retries[_LANE.sub("", entry.path or "")].append(
                    (entry.detail.get("error") or {}).get("type", "an error")
                )
        #: The last claim under which each path was executed.
        self._before: dict[str, Claim] = {}

    def explain(self, one: Execution) -> str | None:
        """None: there is no explanation. Empty: it is the first, and needs none."""
        is_checkpoint = one.path != one.step
        claim = self._claim_of(one, 1 + len(self._retries[one.path]) if is_checkpoint else 1)
        if claim is None:
            return None
        claim.executed[one.path] += 1
        before, self._before[one.path] = self._before.get(one.path), claim
        if before is None:
            return ""
        return self._loss_between(one.step, before, claim) or self._retry(one.path)

    def _claim_of(self, one: Execution, at_most: int) -> Claim | None:
        fitting = (c for c in self._claims[one.step] if c.pid == one.pid and c.at <= one.at + MARGIN)
        return next((c for c in reversed(list(fitting)) if c.executed[one.path] < at_most), None)

    def _loss_between(self, step: str, before: Claim, claim: Claim) -> str | None:
        first, last = sorted((before.number, claim.number))
        causes = (other.cause for other in self._claims[step][first + 1 : last + 1])
        return next((LOSSES[cause] for cause in causes if cause in LOSSES), None)

    def _retry(self, path: str) -> str | None:
        retries = self._retries[path]
        return f"retried after {retries.pop(0)}" if retries else None


def _claims(history: Iterable[HistoryEntry]) -> defaultdict[str, list[Claim]]:
    """The claims of each step, each with what it follows from."""
    claims: defaultdict[str, list[Claim]] = defaultdict(list)
    cause: dict[str, str] = {}
    for entry in history:
        path = entry.path or ""
        if entry.what == "claimed":
            of = claims[path]
            of.append(Claim(len(of), entry.at.timestamp(), _pid(entry.by), cause.pop(path, None)))
        elif entry.what in OF_THE_RUN:
            cause = dict.fromkeys(claims, entry.what)
        elif entry.what in CAUSES:
            cause[path] = entry.what
    return claims


def _pid(executor: str | None) -> int:
    """An executor's id is host:pid:number."""
    return int((executor or "::").split(":")[-2] or 0)
