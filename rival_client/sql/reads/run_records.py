"""Rows of runs, steps and attempts become records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import RowMapping

from rival_client.model.limits.singletons import rules_of, singleton_of
from rival_client.model.records import Run
from rival_client.model.starts.priorities import given_priority, priority_name
from rival_client.model.step_records import Attempt, Step


def run_of(row: RowMapping) -> Run:
    return Run(**run_fields(row))


def run_fields(row: RowMapping) -> dict[str, Any]:
    left_out = ("id", "token", "ring_at", "rings", "retries", "slots", "gather_key")
    fields = {name: value for name, value in row.items() if name not in left_out}
    if (stored := fields.get("policies")) is not None:
        fields |= {"policies": rules_of(stored), "singleton": singleton_of(stored)}
    return {"run_id": row["id"], **fields, "priority": priority_name(row["priority"])}


def step_of(row: RowMapping | Mapping[str, Any]) -> Step:
    left_out = (
        "run_id",
        "execution_token",
        "timeout_token",
        "executor_id",
        "ring_at",
        "rings",
        "state",
        "end_order",
        "begun_after",
        "paused",
        "slots",
    )
    fields = {name: value for name, value in row.items() if name not in left_out}
    fields["priority"] = given_priority(fields.get("priority"))
    return Step(**{"result": None, **fields}, state=row["state"] or {}, executor=row["executor_id"])


def attempt_of(row: RowMapping) -> Attempt:
    return Attempt(
        path=row["path"],
        attempt=row["attempt"],
        outcome=row["outcome"],
        error=row["error"],
        executor=row["executor_id"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        policy=row["policy"],
    )
