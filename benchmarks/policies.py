"""Rival alone: what policies cost, and whether they hold: limits, rates, fairness, rules of the fleet, breakers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import limited_runs, policy_promises
from benchmarks.disciplines import Warm
from benchmarks.loads import Load

LEASE_S = 2.0
WORKFLOWS = str(Path(__file__).with_name("policy_workflows.py"))
#: What is measured, by the name of the discipline.
MEASURED: Mapping[str, Callable[[Warm, Load], None]] = {
    "limited": limited_runs.measure_limited,
    "hot_key": limited_runs.measure_hot_key,
    "tickets": limited_runs.measure_tickets,
    "pace": policy_promises.measure_pace,
    "fairness": policy_promises.measure_fairness,
    "slots": policy_promises.measure_slots,
    "rules": policy_promises.measure_rules,
    "probes": policy_promises.measure_probes,
}


def prepare(discipline: str, url: str) -> None:
    """Settings of the database that the connections of the fleet will have."""
    if discipline == "hot_key":
        limited_runs.delay_commits(url)


def fleet(discipline: str, command: str, workflows: str) -> Sequence[Sequence[str]]:
    """The workers, with the usual concurrency: two; three where one of them is killed and a rate is to be used; a
    prefork pool beside threads where children must learn of a rule."""
    worker = [command, "worker", "--workflows", workflows, "--workflows", WORKFLOWS, "--processes", "1"]
    if discipline == "rules":
        return [worker, [*worker, "--pool", "prefork", "--concurrency", "2"]]
    return [worker] * (3 if discipline == "pace" else 2)
