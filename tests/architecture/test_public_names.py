"""The public names. A change of this list changes what other projects import."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

import rival_client
import rival_workers
from rival_client import AsyncRival, Rival
from rival_client.api.async_base import AsyncClientBase
from rival_client.api.base import ClientBase
from rival_workers import testing
from tests.support.output import whole

CLIENT = [
    "AsyncRival",
    "AsyncStarted",
    "AsyncWorkflowRegistry",
    "Attempt",
    "BreakerRecord",
    "Bulk",
    "BulkOutcome",
    "ConfigurationError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "DeadLetter",
    "DeadLetterFilter",
    "DeliveryRecord",
    "EventConflict",
    "EventRecord",
    "ExecutorRecord",
    "ExplainedField",
    "FleetRule",
    "HistoryEntry",
    "IdempotencyRecord",
    "InvalidArgument",
    "InvalidInput",
    "InvalidPayload",
    "InvalidSetting",
    "InvalidToken",
    "LastError",
    "LimitDetail",
    "LimitKey",
    "LimitRecord",
    "LimitWaiter",
    "LogEntry",
    "NotPossible",
    "PolicyExplanation",
    "PolicyRules",
    "Reason",
    "RebuiltRun",
    "RebuiltStep",
    "Recovery",
    "Redriven",
    "Reopened",
    "Rival",
    "RivalError",
    "Run",
    "RunCancelled",
    "RunConflict",
    "RunFailed",
    "RunFilter",
    "RunHasMoved",
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
    "UnknownLimit",
    "UnknownSchedule",
    "UnknownWorkflow",
    "WaitRecord",
    "WaitTimeout",
    "Why",
    "WorkflowInfo",
    "WorkflowRegistry",
    "at_path",
    "default",
    "every",
    "fast_fail",
    "in_workflow",
    "io_policy",
    "labelled",
    "llm_policy",
    "merge_policies",
    "named",
    "of_kind",
    "rebuild",
    "tagged",
]
WORKERS = [
    "AsyncFlowContext",
    "BreakerOpen",
    "ChildFailed",
    "ChildHandle",
    "Context",
    "DeadlineExceeded",
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
    "HookEvent",
    "IdempotencyConflict",
    "InvalidResult",
    "LimitReached",
    "NotInFlows",
    "PolicyOptions",
    "PolicyRule",
    "PolicyRules",
    "QueueTimeout",
    "Received",
    "Registry",
    "Results",
    "RetryBudgetSpent",
    "RetryWith",
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
    "at_path",
    "branch",
    "breaker",
    "celery_step",
    "create_workflow",
    "default",
    "delay_step",
    "embedded",
    "every",
    "fast_fail",
    "flow",
    "for_each",
    "http_step",
    "in_workflow",
    "install",
    "io_policy",
    "labelled",
    "limit",
    "llm_policy",
    "loop",
    "merge_policies",
    "named",
    "of_kind",
    "parallel",
    "rate",
    "register_workflow_file",
    "register_workflows_from_directory",
    "retry_with",
    "shell_step",
    "step",
    "tagged",
    "value",
    "wait_event_step",
    "workflow",
]
TESTING = ["Lab", "LabError", "LabRun", "NeverEnds", "TimelineEntry"]
CALLS = [
    "active_runs",
    "backfill_schedule",
    "breakers",
    "bulk",
    "cancel",
    "close",
    "close_breaker",
    "complete_step",
    "dead_letters",
    "deliveries",
    "drop_dead_letters",
    "drop_idempotency_key",
    "events",
    "executors",
    "explain_policy",
    "fail_step",
    "fire_schedule",
    "get",
    "heartbeat_step",
    "history",
    "idempotency_key",
    "idempotency_keys",
    "limit",
    "limits",
    "logs",
    "open_breaker",
    "pause",
    "pause_schedule",
    "policies",
    "recover",
    "redrive",
    "remove_policy",
    "reset_breaker",
    "reset_limit",
    "result",
    "resume",
    "resume_schedule",
    "retry",
    "rewind",
    "run",
    "run_many",
    "runs",
    "schedule",
    "schedules",
    "send_event",
    "set_limit",
    "set_policy",
    "set_result",
    "skip",
    "state",
    "topics",
    "tree",
    "unschedule",
    "versions",
    "wait",
    "waits",
    "why",
    "workflows",
]


@pytest.mark.parametrize(("package", "names"), [(rival_client, CLIENT), (rival_workers, WORKERS), (testing, TESTING)])
def test_the_public_names_are_these(package: Any, names: list[str]) -> None:
    assert sorted(package.__all__) == names
    for name in names:
        assert getattr(package, name) is not None


PACKAGES = pytest.mark.parametrize("package", [rival_client, rival_workers, testing])


def for_type_checkers(package: Any) -> dict[str, list[str]]:
    """Module -> names, of the imports that only type checkers see."""
    blocks = [node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If)]
    [seen] = [block for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING"]
    return {
        str(one.module): [alias.name for alias in one.names] for one in seen.body if isinstance(one, ast.ImportFrom)
    }


def when_first_used(package: Any) -> dict[str, list[str]]:
    """Module -> names, of the table that `__getattr__` uses."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(package))) if isinstance(node, ast.Call)]
    [call] = [call for call in calls if ast.unparse(call.func) == "late_names"]
    return ast.literal_eval(call.args[1])  # type: ignore[no-any-return]


def sorted_names(table: dict[str, list[str]]) -> dict[str, list[str]]:
    return {module: sorted(names) for module, names in table.items()}


@PACKAGES
def test_type_checkers_find_each_public_name_where_it_is_found_when_used(package: Any) -> None:
    table = when_first_used(package)
    assert sorted_names(for_type_checkers(package)) == sorted_names(table)
    assert sorted(name for names in table.values() for name in names if name != "__version__") == sorted(
        package.__all__
    )


@PACKAGES
def test_another_name_is_an_attribute_error_that_names_the_package(package: Any) -> None:
    with pytest.raises(AttributeError, match=whole(f"module '{package.__name__}' has no attribute 'nothing'")):
        package.nothing  # noqa: B018


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}


def test_both_clients_have_the_same_surface() -> None:
    sync, asynchronous = public(Rival), public(AsyncRival)
    assert set(asynchronous) == set(CALLS)
    assert set(CALLS) <= set(sync)
    for name in CALLS:
        assert inspect.signature(sync[name]).parameters == inspect.signature(asynchronous[name]).parameters, name
        assert inspect.iscoroutinefunction(asynchronous[name]) == (name != "get")


@pytest.mark.parametrize(("client", "base"), [(Rival, ClientBase), (AsyncRival, AsyncClientBase)])
def test_a_client_lists_all_its_parts_and_they_share_one_base(client: type, base: type) -> None:
    assert {part: part.__bases__ for part in client.__bases__} == dict.fromkeys(client.__bases__, (base,))


def test_internal_actions_are_not_offered_to_users() -> None:
    """The seed's `attempt`, `onTimeout`, `executeNext` and `onStepFinished` are not part of any public surface."""
    offered = {*rival_client.__all__, *rival_workers.__all__, *public(Rival), *public(AsyncRival)}
    internal = ("attempt", "time_out", "timeout", "claim", "finish", "begin", "execute", "advance", "take_over")
    assert not [name for name in offered if name.lower().startswith(internal) and name != "Attempt"]


def test_both_packages_are_typed() -> None:
    for package in (rival_client, rival_workers):
        [where] = package.__path__
        assert (__import__("pathlib").Path(where) / "py.typed").exists()
