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
    from rival_workers.definition.builder import create_workflow
    from rival_workers.definition.composites import branch, for_each, loop, parallel, workflow
    from rival_workers.definition.files import register_workflow_file, register_workflows_from_directory
    from rival_workers.definition.flows import Flow, flow
    from rival_workers.definition.options import PolicyOptions, StepOptions
    from rival_workers.definition.policies import PolicyRule, default, named, of_kind
    from rival_workers.definition.registry import Registry
    from rival_workers.definition.results import Results, StepOf, StepView
    from rival_workers.definition.schedules import Schedule
    from rival_workers.definition.steps import step
    from rival_workers.definition.waits import wait_event_step
    from rival_workers.errors import (
        ChildFailed,
        DefinitionError,
        EventTimeout,
        ExecutorLost,
        FlowChanged,
        FlowStuck,
        HeartbeatMissed,
        InvalidResult,
        NotInFlows,
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

_MODULES = {
    "AsyncFlowContext": "runtime.flow.async_context",
    "ChildFailed": "errors",
    "ChildHandle": "runtime.flow.handles",
    "Context": "runtime.attempt.context",
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
    "InvalidResult": "errors",
    "NotInFlows": "errors",
    "PolicyOptions": "definition.options",
    "PolicyRule": "definition.policies",
    "Received": "runtime.flow.calls",
    "Registry": "definition.registry",
    "Results": "definition.results",
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
    "StepView": "definition.results",
    "Steps": "runtime.attempt.context",
    "TaskRevoked": "errors",
    "WorkerSettings": "settings",
    "WorkflowState": "runtime.attempt.context",
    "branch": "definition.composites",
    "celery_step": "predefined.celery_task",
    "create_workflow": "definition.builder",
    "default": "definition.policies",
    "delay_step": "predefined.delay",
    "embedded": "library",
    "flow": "definition.flows",
    "for_each": "definition.composites",
    "http_step": "predefined.http",
    "install": "runtime.celery.install",
    "loop": "definition.composites",
    "named": "definition.policies",
    "of_kind": "definition.policies",
    "parallel": "definition.composites",
    "register_workflow_file": "definition.files",
    "register_workflows_from_directory": "definition.files",
    "shell_step": "predefined.shell",
    "step": "definition.steps",
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
