"""The public names. A change of this list changes what other projects import."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import rival_client
import rival_workers
from rival_client import AsyncRival, Rival
from rival_workers import testing

CLIENT = [
    "AsyncRival",
    "AsyncStarted",
    "AsyncWorkflowRegistry",
    "Attempt",
    "Bulk",
    "BulkOutcome",
    "ConfigurationError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "EventRecord",
    "HistoryEntry",
    "InvalidArgument",
    "InvalidInput",
    "InvalidPayload",
    "InvalidSetting",
    "InvalidToken",
    "LastError",
    "LogEntry",
    "NotPossible",
    "RebuiltRun",
    "RebuiltStep",
    "Recovery",
    "Reopened",
    "Rival",
    "RivalError",
    "Run",
    "RunCancelled",
    "RunConflict",
    "RunFailed",
    "RunFilter",
    "RunNode",
    "RunNotEnded",
    "RunNotFound",
    "RunResult",
    "RunState",
    "RunStatus",
    "Runs",
    "ScheduleRecord",
    "Sent",
    "Settings",
    "Started",
    "Step",
    "StepStatus",
    "TopicCount",
    "TopicFull",
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkflowInfo",
    "WorkflowRegistry",
    "rebuild",
]
WORKERS = [
    "AsyncFlowContext",
    "ChildFailed",
    "ChildHandle",
    "Context",
    "DefinitionError",
    "EmbeddedRival",
    "EventTimeout",
    "ExecutorLost",
    "First",
    "Flow",
    "FlowChanged",
    "FlowContext",
    "FlowStuck",
    "Handle",
    "HeartbeatMissed",
    "InvalidResult",
    "NotInFlows",
    "PolicyOptions",
    "PolicyRule",
    "Received",
    "Registry",
    "Results",
    "RunInfo",
    "Schedule",
    "StepError",
    "StepFailed",
    "StepLog",
    "StepMovedOn",
    "StepOf",
    "StepOptions",
    "StepState",
    "StepTimeout",
    "StepView",
    "Steps",
    "TaskRevoked",
    "WorkerSettings",
    "WorkflowState",
    "branch",
    "celery_step",
    "create_workflow",
    "default",
    "delay_step",
    "embedded",
    "flow",
    "for_each",
    "http_step",
    "install",
    "loop",
    "named",
    "of_kind",
    "parallel",
    "register_workflow_file",
    "register_workflows_from_directory",
    "shell_step",
    "step",
    "wait_event_step",
    "workflow",
]
TESTING = ["Lab", "LabError", "LabRun", "NeverEnds", "TimelineEntry"]
CALLS = [
    "active_runs",
    "bulk",
    "cancel",
    "close",
    "complete_step",
    "events",
    "fail_step",
    "get",
    "heartbeat_step",
    "history",
    "logs",
    "pause",
    "recover",
    "result",
    "resume",
    "retry",
    "rewind",
    "run",
    "run_many",
    "runs",
    "schedule",
    "schedules",
    "send_event",
    "set_result",
    "skip",
    "state",
    "topics",
    "tree",
    "unschedule",
    "versions",
    "wait",
    "workflows",
]


@pytest.mark.parametrize(("package", "names"), [(rival_client, CLIENT), (rival_workers, WORKERS), (testing, TESTING)])
def test_the_public_names_are_these(package: Any, names: list[str]) -> None:
    assert sorted(package.__all__) == names
    for name in names:
        assert getattr(package, name) is not None


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}


def test_both_clients_have_the_same_surface() -> None:
    sync, asynchronous = public(Rival), public(AsyncRival)
    assert set(asynchronous) == set(CALLS)
    assert set(CALLS) <= set(sync)
    for name in CALLS:
        assert inspect.signature(sync[name]).parameters == inspect.signature(asynchronous[name]).parameters, name
        assert inspect.iscoroutinefunction(asynchronous[name]) == (name != "get")


def test_internal_actions_are_not_offered_to_users() -> None:
    """The seed's `attempt`, `onTimeout`, `executeNext` and `onStepFinished` are not part of any public surface."""
    offered = {*rival_client.__all__, *rival_workers.__all__, *public(Rival), *public(AsyncRival)}
    internal = ("attempt", "time_out", "timeout", "claim", "finish", "begin", "execute", "advance", "take_over")
    assert not [name for name in offered if name.lower().startswith(internal) and name != "Attempt"]


def test_both_packages_are_typed() -> None:
    for package in (rival_client, rival_workers):
        [where] = package.__path__
        assert (__import__("pathlib").Path(where) / "py.typed").exists()
