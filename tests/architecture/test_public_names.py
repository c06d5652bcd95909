"""The names that others may rely on. Whoever changes this list changes what people's code imports."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import rival_client
import rival_workers
from rival_client import AsyncRival, Rival

CLIENT = [
    "AsyncRival", "Attempt", "ConfigurationError", "DatabaseUnavailable", "HistoryEntry", "InvalidInput",
    "InvalidPayload", "LogEntry", "Rival", "RivalError", "Run", "RunCancelled", "RunConflict", "RunFailed",
    "RunNotFound", "RunResult", "RunState", "Started", "Step", "UnknownWorkflow", "WaitTimeout", "WorkflowInfo",
]  # fmt: skip
WORKERS = [
    "Context", "DefinitionError", "EmbeddedRival", "ExecutorLost", "RunInfo", "StepError", "StepLog", "StepState",
    "StepTimeout", "StepView", "Steps", "WorkflowState", "branch", "create_workflow", "embedded", "for_each", "install",
    "loop", "parallel", "register_workflow_file", "register_workflows_from_directory", "step", "workflow",
]  # fmt: skip
CALLS = [
    "cancel", "close", "get", "history", "logs", "result", "run", "run_many", "runs", "state", "versions",
    "wait", "workflows",
]  # fmt: skip


@pytest.mark.parametrize(("package", "names"), [(rival_client, CLIENT), (rival_workers, WORKERS)])
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
    """The seed's `attempt`, `onTimeout`, `executeNext` and `onStepFinished` are no part of any public surface."""
    offered = {*rival_client.__all__, *rival_workers.__all__, *public(Rival), *public(AsyncRival)}
    internal = ("attempt", "time_out", "timeout", "claim", "finish", "begin", "execute", "advance", "take_over")
    assert not [name for name in offered if name.lower().startswith(internal) and name != "Attempt"]


def test_both_packages_are_typed() -> None:
    for package in (rival_client, rival_workers):
        [where] = package.__path__
        assert (__import__("pathlib").Path(where) / "py.typed").exists()
