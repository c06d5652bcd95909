"""What a producer app imports: start durable runs, wait for them, cancel them."""

from rival_client.aio import AsyncRival
from rival_client.bulk import Bulk, BulkOutcome
from rival_client.client import Rival
from rival_client.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
    InvalidPayload,
    InvalidToken,
    NotPossible,
    RivalError,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    TopicFull,
    UnknownWorkflow,
    WaitTimeout,
)
from rival_client.events import EventRecord, Sent, TopicCount
from rival_client.listing import RunFilter, Runs
from rival_client.records import (
    Attempt,
    HistoryEntry,
    LastError,
    LogEntry,
    Reopened,
    Run,
    RunResult,
    RunState,
    Started,
    Step,
    WorkflowInfo,
)
from rival_client.recovery import Recovery
from rival_client.registry import AsyncWorkflowRegistry, WorkflowRegistry
from rival_client.schedules import ScheduleRecord
from rival_client.tree import RunNode

__all__ = [
    "AsyncRival",
    "AsyncWorkflowRegistry",
    "Attempt",
    "Bulk",
    "BulkOutcome",
    "ConfigurationError",
    "DatabaseUnavailable",
    "EventRecord",
    "HistoryEntry",
    "InvalidInput",
    "InvalidPayload",
    "InvalidToken",
    "LastError",
    "LogEntry",
    "NotPossible",
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
    "Runs",
    "ScheduleRecord",
    "Sent",
    "Started",
    "Step",
    "TopicCount",
    "TopicFull",
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkflowInfo",
    "WorkflowRegistry",
]
