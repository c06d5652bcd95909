"""What a workflow file imports: steps are plain functions, a list of them is a workflow.

Each name is imported when it is first used. This keeps the pytest plugin, the command line and the embedded servers'
supervisor from loading the engine, Celery and Alembic.

PYTEST_DONT_REWRITE: the package has a pytest plugin, but no assertions of tests; pytest warns without this marker when
the package was imported before pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rival_client import __version__ as __version__
    from rival_client.model.fallback_option import RetryWith, retry_with, value
    from rival_client.model.matchers import at_path, default, every, in_workflow, labelled, named, of_kind, tagged
    from rival_client.model.presets import PolicyRules, fast_fail, io_policy, llm_policy, merge_policies
    from rival_workers.definition.builder import create_workflow
    from rival_workers.definition.composites import branch, for_each, loop, parallel, workflow
    from rival_workers.definition.files import register_workflow_file, register_workflows_from_directory
    from rival_workers.definition.flows import Flow, flow
    from rival_workers.definition.hooks import HookEvent
    from rival_workers.definition.options import PolicyOptions, StepOptions, limit, rate
    from rival_workers.definition.registry import Registry
    from rival_workers.definition.results import Results, StepOf, StepView
    from rival_workers.definition.rules import PolicyRule
    from rival_workers.definition.schedules import Schedule
    from rival_workers.definition.steps import step
    from rival_workers.definition.waits import wait_event_step
    from rival_workers.errors import (
        BreakerOpen,
        ChildFailed,
        DeadlineExceeded,
        DefinitionError,
        EventTimeout,
        ExecutorLost,
        FlowChanged,
        FlowStuck,
        HeartbeatMissed,
        IdempotencyConflict,
        InvalidResult,
        LimitReached,
        NotInFlows,
        QueueTimeout,
        RetryBudgetSpent,
        StepError,
        StepFailed,
        StepMovedOn,
        StepTimeout,
        TaskRevoked,
    )
    from rival_workers.library import EmbeddedRival, embedded
    from rival_workers.predefined.celery_task import celery_step
    from rival_workers.predefined.delay import delay_step
    from rival_workers.predefined.http import http_step
    from rival_workers.predefined.shell import shell_step
    from rival_workers.runtime.attempt.context import Context, RunInfo, Steps, StepState, WorkflowState
    from rival_workers.runtime.celery.install import install
    from rival_workers.runtime.flow.async_context import AsyncFlowContext
    from rival_workers.runtime.flow.calls import Received
    from rival_workers.runtime.flow.handles import ChildHandle, First, Handle
    from rival_workers.runtime.flow.sync_context import FlowContext
    from rival_workers.runtime.logs.step_log import StepLog
    from rival_workers.settings import WorkerSettings

__all__ = [
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

_MODULES = {
    "AsyncFlowContext": "runtime.flow.async_context",
    "BreakerOpen": "errors",
    "ChildFailed": "errors",
    "ChildHandle": "runtime.flow.handles",
    "Context": "runtime.attempt.context",
    "DeadlineExceeded": "errors",
    "DefinitionError": "errors",
    "EmbeddedRival": "library",
    "EventTimeout": "errors",
    "ExecutorLost": "errors",
    "First": "runtime.flow.handles",
    "Flow": "definition.flows",
    "FlowChanged": "errors",
    "FlowContext": "runtime.flow.sync_context",
    "FlowStuck": "errors",
    "Handle": "runtime.flow.handles",
    "HeartbeatMissed": "errors",
    "IdempotencyConflict": "errors",
    "HookEvent": "definition.hooks",
    "InvalidResult": "errors",
    "LimitReached": "errors",
    "NotInFlows": "errors",
    "PolicyOptions": "definition.options",
    "PolicyRule": "definition.rules",
    "PolicyRules": "definition.rules",
    "Received": "runtime.flow.calls",
    "Registry": "definition.registry",
    "Results": "definition.results",
    "RetryBudgetSpent": "errors",
    "RetryWith": "definition.options",
    "RunInfo": "runtime.attempt.context",
    "Schedule": "definition.schedules",
    "StepError": "errors",
    "StepFailed": "errors",
    "StepLog": "runtime.logs.step_log",
    "StepMovedOn": "errors",
    "StepOf": "definition.results",
    "StepOptions": "definition.options",
    "StepState": "runtime.attempt.context",
    "StepTimeout": "errors",
    "QueueTimeout": "errors",
    "StepView": "definition.results",
    "Steps": "runtime.attempt.context",
    "TaskRevoked": "errors",
    "WorkerSettings": "settings",
    "WorkflowState": "runtime.attempt.context",
    "at_path": "definition.rules",
    "branch": "definition.composites",
    "breaker": "definition.options",
    "celery_step": "predefined.celery_task",
    "create_workflow": "definition.builder",
    "default": "definition.rules",
    "delay_step": "predefined.delay",
    "embedded": "library",
    "every": "definition.rules",
    "fast_fail": "definition.rules",
    "flow": "definition.flows",
    "for_each": "definition.composites",
    "http_step": "predefined.http",
    "in_workflow": "definition.rules",
    "install": "runtime.celery.install",
    "io_policy": "definition.rules",
    "labelled": "definition.rules",
    "limit": "definition.options",
    "llm_policy": "definition.rules",
    "loop": "definition.composites",
    "merge_policies": "definition.rules",
    "named": "definition.rules",
    "of_kind": "definition.rules",
    "parallel": "definition.composites",
    "rate": "definition.options",
    "register_workflow_file": "definition.files",
    "register_workflows_from_directory": "definition.files",
    "retry_with": "definition.options",
    "shell_step": "predefined.shell",
    "step": "definition.steps",
    "tagged": "definition.rules",
    "value": "definition.options",
    "wait_event_step": "definition.waits",
    "workflow": "definition.composites",
}


if not TYPE_CHECKING:
    # A type checker would accept any name.
    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("rival_client").__version__
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value
