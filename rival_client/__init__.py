"""The public names of the client, for producers: start durable runs, wait for them, read and operate them.

Each name is imported when it is first used: some of them import SQLAlchemy, psycopg, redis or kombu, and neither a
workflow file nor `rival --help` should wait for these.
"""

from typing import TYPE_CHECKING

from rival_client.late_names import late_names

if TYPE_CHECKING:
    from rival_client.api.async_client import AsyncRival
    from rival_client.api.bulk import Bulk, BulkOutcome
    from rival_client.api.client import Rival
    from rival_client.api.dead_letters import Redriven
    from rival_client.api.handles import AsyncStarted, Started
    from rival_client.api.workflow_registry import AsyncWorkflowRegistry, WorkflowRegistry
    from rival_client.errors import (
        ConfigurationError,
        DatabaseBusy,
        DatabaseError,
        DatabaseRefused,
        DatabaseUnavailable,
        EventConflict,
        InvalidArgument,
        InvalidInput,
        InvalidPayload,
        InvalidSetting,
        InvalidToken,
        NotPossible,
        RivalError,
        RunCancelled,
        RunConflict,
        RunFailed,
        RunHasMoved,
        RunNotEnded,
        RunNotFound,
        TopicFull,
        UnknownLimit,
        UnknownSchedule,
        UnknownWorkflow,
        WaitTimeout,
    )
    from rival_client.model.dead_letters import DeadLetter, DeadLetterFilter
    from rival_client.model.limits.idempotency_records import IdempotencyRecord
    from rival_client.model.limits.limit_records import LimitDetail, LimitKey, LimitRecord, LimitWaiter
    from rival_client.model.policies.breakers import BreakerRecord
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
    from rival_client.model.policies.policy_explanation import ExplainedField, PolicyExplanation
    from rival_client.model.policies.presets import PolicyRules, fast_fail, io_policy, llm_policy, merge_policies
    from rival_client.model.policies.rulebook import FleetRule
    from rival_client.model.rebuild import rebuild
    from rival_client.model.rebuilt_records import RebuiltRun, RebuiltStep
    from rival_client.model.records import Reopened, Run, RunResult, RunState
    from rival_client.model.recovery import Recovery
    from rival_client.model.run_entries import HistoryEntry, LogEntry
    from rival_client.model.run_node import RunNode
    from rival_client.model.statuses import RunStatus, StepStatus
    from rival_client.model.step_records import Attempt, LastError, Step
    from rival_client.model.why.why_records import Reason, Why
    from rival_client.model.workflow_info import WorkflowInfo
    from rival_client.settings import Settings
    from rival_client.sql.events import Sent
    from rival_client.sql.reads.event_reads import EventRecord, TopicCount
    from rival_client.sql.reads.executors import ExecutorRecord
    from rival_client.sql.reads.run_filter import RunFilter
    from rival_client.sql.reads.run_search import Runs
    from rival_client.sql.reads.schedule_reads import ScheduleRecord
    from rival_client.sql.reads.waits import DeliveryRecord, WaitRecord

#: The version of the distribution, which holds `rival_workers` too: pyproject.toml takes it from here.
__version__ = "0.1.0"

__all__ = [
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

if not TYPE_CHECKING:
    # A type checker would accept any name.
    __getattr__ = late_names(
        __name__,
        {
            "rival_client.api.async_client": ["AsyncRival"],
            "rival_client.api.bulk": ["Bulk", "BulkOutcome"],
            "rival_client.api.client": ["Rival"],
            "rival_client.api.dead_letters": ["Redriven"],
            "rival_client.api.handles": ["AsyncStarted", "Started"],
            "rival_client.api.workflow_registry": ["AsyncWorkflowRegistry", "WorkflowRegistry"],
            "rival_client.errors": [
                "ConfigurationError",
                "DatabaseBusy",
                "DatabaseError",
                "DatabaseRefused",
                "DatabaseUnavailable",
                "EventConflict",
                "InvalidArgument",
                "InvalidInput",
                "InvalidPayload",
                "InvalidSetting",
                "InvalidToken",
                "NotPossible",
                "RivalError",
                "RunCancelled",
                "RunConflict",
                "RunFailed",
                "RunHasMoved",
                "RunNotEnded",
                "RunNotFound",
                "TopicFull",
                "UnknownLimit",
                "UnknownSchedule",
                "UnknownWorkflow",
                "WaitTimeout",
            ],
            "rival_client.model.policies.breakers": ["BreakerRecord"],
            "rival_client.model.dead_letters": ["DeadLetter", "DeadLetterFilter"],
            "rival_client.model.limits.idempotency_records": ["IdempotencyRecord"],
            "rival_client.model.limits.limit_records": ["LimitDetail", "LimitKey", "LimitRecord", "LimitWaiter"],
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
            "rival_client.model.policies.policy_explanation": ["ExplainedField", "PolicyExplanation"],
            "rival_client.model.policies.presets": [
                "PolicyRules",
                "fast_fail",
                "io_policy",
                "llm_policy",
                "merge_policies",
            ],
            "rival_client.model.rebuild": ["rebuild"],
            "rival_client.model.rebuilt_records": ["RebuiltRun", "RebuiltStep"],
            "rival_client.model.records": ["Reopened", "Run", "RunResult", "RunState"],
            "rival_client.model.recovery": ["Recovery"],
            "rival_client.model.policies.rulebook": ["FleetRule"],
            "rival_client.model.run_entries": ["HistoryEntry", "LogEntry"],
            "rival_client.model.run_node": ["RunNode"],
            "rival_client.model.statuses": ["RunStatus", "StepStatus"],
            "rival_client.model.step_records": ["Attempt", "LastError", "Step"],
            "rival_client.model.why.why_records": ["Reason", "Why"],
            "rival_client.model.workflow_info": ["WorkflowInfo"],
            "rival_client.settings": ["Settings"],
            "rival_client.sql.reads.event_reads": ["EventRecord", "TopicCount"],
            "rival_client.sql.events": ["Sent"],
            "rival_client.sql.reads.executors": ["ExecutorRecord"],
            "rival_client.sql.reads.run_filter": ["RunFilter"],
            "rival_client.sql.reads.run_search": ["Runs"],
            "rival_client.sql.reads.schedule_reads": ["ScheduleRecord"],
            "rival_client.sql.reads.waits": ["DeliveryRecord", "WaitRecord"],
        },
    )
