"""The route table: everything that the API can do, each with the role that it needs."""

from __future__ import annotations

from typing import Any

from rival_workers.dashboard.api import (
    audit_list,
    bulk_actions,
    comparison,
    export,
    external_answers,
    failures,
    fleet_status,
    live,
    one_run,
    policy_rules,
    reasons,
    run_history,
    run_list,
    run_steps,
    schedule_list,
    session,
    shared_results,
    sharing,
    start,
    time_travel,
    topics,
    verbs,
    workflows,
)
from rival_workers.dashboard.openapi import description
from rival_workers.dashboard.route import Call, Route


def _describe(call: Call) -> dict[str, Any]:
    return description(TABLE, call.base + "api/v1")


TABLE: tuple[Route, ...] = (
    *session.ROUTES,
    *run_list.ROUTES,
    *export.ROUTES,
    *one_run.ROUTES,
    *run_history.ROUTES,
    *reasons.ROUTES,
    *run_steps.ROUTES,
    *time_travel.ROUTES,
    *live.ROUTES,
    *verbs.ROUTES,
    *bulk_actions.ROUTES,
    *start.ROUTES,
    *workflows.ROUTES,
    *fleet_status.ROUTES,
    *comparison.ROUTES,
    *sharing.ROUTES,
    *failures.ROUTES,
    *shared_results.ROUTES,
    *policy_rules.ROUTES,
    *external_answers.ROUTES,
    *topics.ROUTES,
    *schedule_list.ROUTES,
    *audit_list.ROUTES,
    Route("GET", "/openapi.json", "viewer", _describe, "Describe the API"),
)
