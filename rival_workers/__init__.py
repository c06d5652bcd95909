"""What a workflow file imports: steps are plain functions, a list of them is a workflow."""

from typing import TYPE_CHECKING, Any

from rival_client import __version__ as __version__
from rival_workers.definition.builder import create_workflow
from rival_workers.definition.composites import branch, for_each, loop, parallel, workflow
from rival_workers.definition.files import register_workflow_file, register_workflows_from_directory
from rival_workers.definition.flows import flow
from rival_workers.definition.policies import default, named, of_kind
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
from rival_workers.predefined.celery_task import celery_step
from rival_workers.predefined.delay import delay_step
from rival_workers.predefined.http import http_step
from rival_workers.predefined.shell import shell_step
from rival_workers.runtime.context import Context, RunInfo, Steps, StepState, WorkflowState
from rival_workers.runtime.flow_async import AsyncFlowContext
from rival_workers.runtime.flow_calls import Received
from rival_workers.runtime.flow_handles import ChildHandle, First, Handle
from rival_workers.runtime.flow_sync import FlowContext
from rival_workers.runtime.logs import StepLog

if TYPE_CHECKING:
    from rival_workers.library import EmbeddedRival, embedded
    from rival_workers.runtime.celery_install import install
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
    "FlowChanged",
    "FlowContext",
    "FlowStuck",
    "Handle",
    "HeartbeatMissed",
    "InvalidResult",
    "NotInFlows",
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


def __getattr__(name: str) -> Any:
    # Celery and Alembic come with it: neither a workflow file nor the command line should wait for them.
    if name in ("EmbeddedRival", "embedded"):
        from rival_workers import library

        return getattr(library, name)
    if name == "install":
        from rival_workers.runtime.celery_install import install

        return install
    if name == "WorkerSettings":
        from rival_workers.settings import WorkerSettings

        return WorkerSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
