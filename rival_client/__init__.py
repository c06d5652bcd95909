"""What a producer app imports: start durable runs, wait for them, cancel them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rival_client.api.handles import AsyncStarted, AsyncWorkflowRegistry, Started, WorkflowRegistry
from rival_client.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseRefused,
    DatabaseUnavailable,
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
from rival_client.model.records import (
    Attempt,
    HistoryEntry,
    LastError,
    LogEntry,
    Reopened,
    Run,
    RunResult,
    RunState,
    Step,
    WorkflowInfo,
)
from rival_client.model.statuses import RunStatus, StepStatus

if TYPE_CHECKING:
    from rival_client.api.async_client import AsyncRival
    from rival_client.api.bulk import Bulk, BulkOutcome
    from rival_client.api.client import Rival
    from rival_client.api.dead_letters import Redriven
    from rival_client.model.breakers import BreakerRecord
    from rival_client.model.idempotency import IdempotencyRecord
    from rival_client.model.matchers import at_path, every, in_workflow, labelled, named, of_kind, tagged
    from rival_client.model.policy_explanation import ExplainedField, PolicyExplanation
    from rival_client.model.presets import PolicyRules, fast_fail, io_policy, llm_policy, merge_policies
    from rival_client.model.rebuild import RebuiltRun, RebuiltStep, rebuild
    from rival_client.model.run_policies import FleetRule
    from rival_client.model.why_records import Reason, Why
    from rival_client.settings import Settings
    from rival_client.sql.dead_letters import DeadLetter, DeadLetterFilter
    from rival_client.sql.events import EventRecord, Sent, TopicCount
    from rival_client.sql.executors import ExecutorRecord
    from rival_client.sql.limit_records import LimitDetail, LimitKey, LimitRecord, LimitWaiter
    from rival_client.sql.recovery import Recovery
    from rival_client.sql.run_family import RunNode
    from rival_client.sql.run_search import RunFilter, Runs
    from rival_client.sql.schedules import ScheduleRecord
    from rival_client.sql.waits import DeliveryRecord, WaitRecord

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

#: Found when first asked for: SQLAlchemy, psycopg, redis and kombu come with them, and neither a workflow file nor
#: `rival --help` should wait for these.
_LATE = {
    "AsyncRival": "api.async_client",
    "BreakerRecord": "model.breakers",
    "Bulk": "api.bulk",
    "BulkOutcome": "api.bulk",
    "DeadLetter": "sql.dead_letters",
    "DeadLetterFilter": "sql.dead_letters",
    "DeliveryRecord": "sql.waits",
    "EventRecord": "sql.events",
    "ExecutorRecord": "sql.executors",
    "ExplainedField": "model.policy_explanation",
    "FleetRule": "model.run_policies",
    "IdempotencyRecord": "model.idempotency",
    "PolicyExplanation": "model.policy_explanation",
    "PolicyRules": "model.presets",
    "Reason": "model.why_records",
    "RebuiltRun": "model.rebuild",
    "RebuiltStep": "model.rebuild",
    "Recovery": "sql.recovery",
    "Redriven": "api.dead_letters",
    "Rival": "api.client",
    "RunFilter": "sql.run_search",
    "RunNode": "sql.run_family",
    "Runs": "sql.run_search",
    "LimitDetail": "sql.limit_records",
    "LimitKey": "sql.limit_records",
    "LimitRecord": "sql.limit_records",
    "LimitWaiter": "sql.limit_records",
    "ScheduleRecord": "sql.schedules",
    "Sent": "sql.events",
    "Settings": "settings",
    "TopicCount": "sql.events",
    "WaitRecord": "sql.waits",
    "Why": "model.why_records",
    "at_path": "model.matchers",
    "every": "model.matchers",
    "fast_fail": "model.presets",
    "in_workflow": "model.matchers",
    "io_policy": "model.presets",
    "labelled": "model.matchers",
    "llm_policy": "model.presets",
    "merge_policies": "model.presets",
    "named": "model.matchers",
    "of_kind": "model.matchers",
    "rebuild": "model.rebuild",
    "tagged": "model.matchers",
}


if not TYPE_CHECKING:
    # A type checker would accept any name.
    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
