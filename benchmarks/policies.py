"""Rival alone: what policies cost, and whether they hold: limits, rates, fairness, priorities, rules of the fleet,
breakers, starts that become one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import limited_runs, policy_faults, policy_loads, policy_promises
from benchmarks.disciplines import Warm
from benchmarks.loads import Load

LEASE_S = 2.0
WORKFLOWS = str(Path(__file__).with_name("policy_workflows.py"))
#: What is measured, by the name of the discipline.
MEASURED: Mapping[str, Callable[[Warm, Load], None]] = {
    "ruled": policy_loads.measure_ruled,
    "limited": limited_runs.measure_limited,
    "limited_slow": limited_runs.measure_limited_slow,
    "hot_key": limited_runs.measure_hot_key,
    "held": limited_runs.measure_held,
    "tickets": limited_runs.measure_tickets,
    "pace": policy_promises.measure_pace,
    "fairness": policy_promises.measure_fairness,
    "low": policy_loads.measure_low,
    "slots": policy_promises.measure_slots,
    "slot_use": policy_faults.measure_slot_use,
    "lost_messages": policy_faults.measure_lost_messages,
    "rules": policy_promises.measure_rules,
    "probes": policy_promises.measure_probes,
    "debounce": policy_loads.measure_debounce,
}


def prepare(discipline: str, url: str) -> None:
    """Settings of the database that the connections of the fleet will have."""
    if discipline in ("hot_key", "held", "limited_slow"):
        limited_runs.delay_commits(url)


def fleet(discipline: str, command: str, workflows: str) -> Sequence[Sequence[str]]:
    """The workers, with the usual concurrency: two; three where one of them is killed and the others use what is
    allowed; a prefork pool beside threads where children must learn of a rule."""
    worker = [command, "worker", "--workflows", workflows, "--workflows", WORKFLOWS, "--processes", "1"]
    if discipline == "rules":
        return [worker, [*worker, "--pool", "prefork", "--concurrency", "2"]]
    return [worker] * (3 if discipline in ("pace", "slot_use") else 2)
