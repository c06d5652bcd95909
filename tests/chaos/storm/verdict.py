"""The verdict: nothing lost, nothing stuck, nothing wrong, nothing left behind. Reads the tables as their owner, after
everything is healed and has settled.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Row, select

from rival_client.db.database import Database
from rival_client.db.event_tables import events, waits
from rival_client.db.fleet_tables import executors
from rival_client.db.log_tables import history
from rival_client.db.run_tables import attempts, orphans, runs, steps
from rival_client.db.types import now
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.sql.reads.history_columns import as_entry
from rival_client.sql.reads.history_reads import whole_entries
from tests.chaos.storm.cases import CASES, CHILDREN, Expected, undone_steps
from tests.chaos.storm.effects import OF_THE_RUN, Effects
from tests.chaos.storm.ledger import Execution, Ledger
from tests.chaos.storm.producer import EVERY, Accepted
from tests.support.histories import assert_histories_are_complete


@dataclass
class Verdict:
    accepted: int = 0
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    #: Rows that should have gone: waits, orphans, events, claims.
    left_behind: list[str] = field(default_factory=list)
    effects: Effects = field(default_factory=Effects)
    #: What became of attempts that did not simply succeed.
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def problems(self) -> int:
        return sum(map(len, (self.lost, self.stuck, self.wrong, self.left_behind, self.effects.unexplained)))


class Judge:
    """All tables are read once, at one moment."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        with database.snapshot() as connection:
            self.runs = {row.id: row for row in connection.execute(select(runs))}
            self.steps = _grouped(connection.execute(select(steps)))
            found = connection.execute(whole_entries(connection).order_by(history.c.id))
            self.history: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
            for row in found:
                self.history[row.run_id].append(as_entry(row))
            self.attempts = connection.execute(select(attempts.c.outcome)).scalars().all()
            self.living = set(
                connection.execute(select(executors.c.id).where(executors.c.expires_at > now())).scalars()
            )
            self.waits = connection.execute(select(waits)).all()
            self.orphans = connection.execute(select(orphans.c.run_id)).scalars().all()
            self.events = connection.execute(select(events)).all()
        self.children: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        for run in self.runs.values():
            self.children[run.parent_run_id or ""].append(run)
        self.executions: defaultdict[str, list[Execution]] = defaultdict(list)
        for one in ledger.executions():
            self.executions[one.run_id].append(one)

    def judge(self, accepted: Sequence[Accepted]) -> Verdict:
        verdict = Verdict(len(accepted), len(self.runs), Counter(row.status for row in self.runs.values()))
        verdict.outcomes.update(self.attempts)
        verdict.lost += [run.run_id for run in accepted if run.run_id not in self.runs]
        verdict.lost += [run_id for run_id in self.executions if run_id not in self.runs]
        by_id = {run.run_id: run for run in accepted}
        for run_id, row in self.runs.items():
            self._judge_run(verdict, row, by_id.get(run_id))
        self._look_for_missed_ticks(verdict)
        self._look_for_leftovers(verdict)
        self._compare_histories(verdict)
        return verdict

    # -- one run ------------------------------------------------------------------------------------------------

    def _judge_run(self, verdict: Verdict, row: Row[Any], run: Accepted | None) -> None:
        if row.status not in RUN_TERMINAL:
            verdict.stuck.append(self._description(row))
            return
        expected = CASES[row.workflow].expect(row.id, row.input)
        problems = list(self._problems(row, run, expected))
        verdict.wrong += [f"{row.workflow} {row.id} ({run and run.verb}): {problem}" for problem in problems]
        verdict.effects.add(self.executions[row.id], self.history[row.id])

    def _problems(self, row: Row[Any], run: Accepted | None, expected: Expected) -> Iterable[str]:
        may_be_cancelled = run.verb == "cancel" if run is not None else row.parent_run_id is not None
        if row.status == "cancelled" and may_be_cancelled:
            return
        if run is not None and run.verb == "cancel" and run.cancelled:
            yield f"cancel() returned True, and the run is {row.status}"
        result = _comparable(row.workflow, row.result)
        if (row.status, row.failed_step) != (expected.status, expected.failed_step):
            yield f"{row.status} at {row.failed_step}, not {expected.status} at {expected.failed_step}: {row.error}"
        elif result != expected.result:
            yield f"result {result}, not {expected.result}"
        if run is not None and run.waited not in (None, (row.status, row.result)):
            yield f"wait() returned {run.waited}, and the run is {row.status} with {row.result}"
        yield from self._problems_of_steps(row, expected)

    def _problems_of_steps(self, row: Row[Any], expected: Expected) -> Iterable[str]:
        done = {one.path for one in self.executions[row.id]}
        # What an operator has settled may never have run.
        done |= {entry.path or "" for entry in self.history[row.id] if entry.what == "set_result"}
        if done != expected.effects:
            yield f"effects missing {sorted(expected.effects - done)}, not expected {sorted(done - expected.effects)}"
        for step in self.steps[row.id]:
            if expected.attempts.get(step.path, step.attempts) != step.attempts:
                yield f"{step.path} took {step.attempts} attempts, not {expected.attempts[step.path]}"
        if row.workflow == "plain":
            yield from self._problems_of_chain(row)
        if row.workflow == "saga":
            yield from self._problems_of_saga(row)
        for kind, count in CHILDREN.get(row.workflow, {}).items():
            yield from self._problems_of_children(row, kind, count)

    def _problems_of_chain(self, row: Row[Any]) -> Iterable[str]:
        """Each step's result is that of one real execution, and the next step saw that one and no other."""
        results = {step.path: step.result for step in self.steps[row.id]}
        nonces = {(one.path, one.nonce) for one in self.executions[row.id]}
        before = None
        for path in ("first", "flaky", "slow_at_first", "awaited", "last"):
            result = results.get(path) or {}
            if (path, result.get("nonce")) not in nonces:
                yield f"{path}: no execution has this result: {result}"
            if result.get("saw") != before:
                yield f"{path} saw {result.get('saw')}, and the accepted result before it is {before}"
            before = result.get("nonce")

    def _problems_of_saga(self, row: Row[Any]) -> Iterable[str]:
        """Each compensation has ended once, in the reverse order of the steps."""
        ended = {step.path: step.completed_at for step in self.steps[row.id]}
        wanted = sorted(undone_steps(row.input) & ended.keys(), key=lambda path: (ended[path], path), reverse=True)
        completed = [entry.path or "" for entry in self.history[row.id] if entry.what == "completed"]
        undone = [path.removesuffix("!compensate") for path in completed if path.endswith("!compensate")]
        if [path for path in undone if path] != wanted:
            yield f"to be undone {wanted}, undone {undone}"

    def _problems_of_children(self, row: Row[Any], kind: str, count: int) -> Iterable[str]:
        children = [one for one in self.children[row.id] if f"{kind}:" in one.id.rpartition("/")[2]]
        reopened = any(entry.what in OF_THE_RUN for entry in self.history[row.id])
        if not count <= sum(one.status == "completed" for one in children) <= (count * 2 if reopened else count):
            yield f"{kind}: its children are {[(one.id, one.status) for one in children]}"

    def _description(self, row: Row[Any]) -> str:
        still = [dict(step._mapping) for step in self.steps[row.id] if step.completed_at is None]
        last = [f"{e.at:%H:%M:%S.%f} {e.path} {e.what} {e.by}" for e in self.history[row.id][-12:]]
        return json.dumps({"run": dict(row._mapping), "open": still, "history": last}, default=str, indent=1)

    # -- the tables ---------------------------------------------------------------------------------------------

    def _look_for_missed_ticks(self, verdict: Verdict) -> None:
        """A run for each tick of the schedule, also of those that came while everything was down."""
        ticks = sorted(
            datetime.fromisoformat(row.id.partition("@")[2]) for row in self.runs.values() if row.workflow == "tick"
        )
        gaps = [(one, next_one) for one, next_one in pairwise(ticks) if next_one - one != timedelta(seconds=EVERY)]
        verdict.wrong += [f"the schedule has no run between {one} and {next_one}" for one, next_one in gaps]

    def _look_for_leftovers(self, verdict: Verdict) -> None:
        left = verdict.left_behind
        for run_id, rows in self.steps.items():
            ended = run_id not in self.runs or self.runs[run_id].status in RUN_TERMINAL
            left += [f"open step {run_id} {row.path}" for row in rows if ended and row.completed_at is None]
            left += [
                f"{run_id} {row.path} is claimed by {row.executor_id}, which is dead"
                for row in rows
                if row.status == "running" and row.executor_id not in self.living
            ]
        left += [f"wait of {row.run_id} {row.path}" for row in self.waits if self._has_ended(row.run_id)]
        left += [f"orphan {run_id}" for run_id in self.orphans]
        left += [f"event {row.id} is still on its way" for row in self.events if row.status == "sent"]

    def _has_ended(self, run_id: str) -> bool:
        return run_id not in self.runs or self.runs[run_id].status in RUN_TERMINAL

    def _compare_histories(self, verdict: Verdict) -> None:
        try:
            assert_histories_are_complete(self._database)
        except AssertionError as difference:
            verdict.wrong.append(f"the tables differ from the history: {difference}")


def _comparable(workflow: str, result: Any) -> Any:
    """Without what does not follow from the input alone."""
    if workflow == "plain" and isinstance(result, dict):
        return {"value": result["value"]}
    if workflow == "journey" and isinstance(result, dict):
        # A child that is started again after a retry has a number.
        return {**result, "spawned": result["spawned"].partition("~")[0]}
    return result


def _grouped(rows: Iterable[Row[Any]]) -> defaultdict[str, list[Row[Any]]]:
    found: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.run_id].append(row)
    return found
