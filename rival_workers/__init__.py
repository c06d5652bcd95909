"""The public names for workflow files: steps are plain functions, and a list of them is a workflow.

Each name is imported when it is first used. This keeps the pytest plugin, the command line and the embedded servers'
supervisor from loading the engine, Celery and Alembic.

PYTEST_DONT_REWRITE: the package has a pytest plugin, but no assertions of tests; pytest warns without this marker when
the package was imported before pytest.
"""

from typing import TYPE_CHECKING

from rival_client.late_names import late_names

if TYPE_CHECKING:
    from rival_client import __version__ as __version__
    from rival_client.model.limits.limit_options import limit, rate
    from rival_client.model.policies.breakers import breaker
    from rival_client.model.policies.fallback_option import RetryWith, retry_with, value
    from rival_client.model.policies.matchers import (
        at_path,
        default,
        every,
        in_workflow,
        labelled,
        named,
        of_kind,
        tagged,
    )
    from rival_client.model.policies.presets import PolicyRules, fast_fail, io_policy, llm_policy, merge_policies
    from rival_workers.definition.builder import create_workflow
    from rival_workers.definition.composites import branch, for_each, loop, parallel, workflow
    from rival_workers.definition.files import register_workflow_file, register_workflows_from_directory
    from rival_workers.definition.flows import Flow, flow
    from rival_workers.definition.hooks import HookEvent
    from rival_workers.definition.options import PolicyOptions, StepOptions
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

if not TYPE_CHECKING:
    # A type checker would accept any name.
    __getattr__ = late_names(
        __name__,
        {
            "rival_client": ["__version__"],
            "rival_client.model.policies.breakers": ["breaker"],
            "rival_client.model.policies.fallback_option": ["RetryWith", "retry_with", "value"],
            "rival_client.model.limits.limit_options": ["limit", "rate"],
            "rival_client.model.policies.matchers": [
                "at_path",
                "default",
                "every",
                "in_workflow",
                "labelled",
                "named",
                "of_kind",
                "tagged",
            ],
            "rival_client.model.policies.presets": [
                "PolicyRules",
                "fast_fail",
                "io_policy",
                "llm_policy",
                "merge_policies",
            ],
            "rival_workers.definition.builder": ["create_workflow"],
            "rival_workers.definition.composites": ["branch", "for_each", "loop", "parallel", "workflow"],
            "rival_workers.definition.files": ["register_workflow_file", "register_workflows_from_directory"],
            "rival_workers.definition.flows": ["Flow", "flow"],
            "rival_workers.definition.hooks": ["HookEvent"],
            "rival_workers.definition.options": ["PolicyOptions", "StepOptions"],
            "rival_workers.definition.registry": ["Registry"],
            "rival_workers.definition.results": ["Results", "StepOf", "StepView"],
            "rival_workers.definition.rules": ["PolicyRule"],
            "rival_workers.definition.schedules": ["Schedule"],
            "rival_workers.definition.steps": ["step"],
            "rival_workers.definition.waits": ["wait_event_step"],
            "rival_workers.errors": [
                "BreakerOpen",
                "ChildFailed",
                "DeadlineExceeded",
                "DefinitionError",
                "EventTimeout",
                "ExecutorLost",
                "FlowChanged",
                "FlowStuck",
                "HeartbeatMissed",
                "IdempotencyConflict",
                "InvalidResult",
                "LimitReached",
                "NotInFlows",
                "QueueTimeout",
                "RetryBudgetSpent",
                "StepError",
                "StepFailed",
                "StepMovedOn",
                "StepTimeout",
                "TaskRevoked",
            ],
            "rival_workers.library": ["EmbeddedRival", "embedded"],
            "rival_workers.predefined.celery_task": ["celery_step"],
            "rival_workers.predefined.delay": ["delay_step"],
            "rival_workers.predefined.http": ["http_step"],
            "rival_workers.predefined.shell": ["shell_step"],
            "rival_workers.runtime.attempt.context": ["Context", "RunInfo", "StepState", "Steps", "WorkflowState"],
            "rival_workers.runtime.celery.install": ["install"],
            "rival_workers.runtime.flow.async_context": ["AsyncFlowContext"],
            "rival_workers.runtime.flow.calls": ["Received"],
            "rival_workers.runtime.flow.handles": ["ChildHandle", "First", "Handle"],
            "rival_workers.runtime.flow.sync_context": ["FlowContext"],
            "rival_workers.runtime.logs.step_log": ["StepLog"],
            "rival_workers.settings": ["WorkerSettings"],
        },
    )
