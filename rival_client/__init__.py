"""What a producer app imports: start durable runs, wait for them, cancel them."""

from rival_client.aio import AsyncRival
from rival_client.client import Rival
from rival_client.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
    InvalidPayload,
    RivalError,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunNotFound,
    UnknownWorkflow,
    WaitTimeout,
)
from rival_client.records import (
    Attempt,
    HistoryEntry,
    LogEntry,
    Run,
    RunResult,
    RunState,
    Started,
    Step,
    WorkflowInfo,
)

__all__ = [
    "AsyncRival",
    "Attempt",
    "ConfigurationError",
    "DatabaseUnavailable",
    "HistoryEntry",
    "InvalidInput",
    "InvalidPayload",
    "LogEntry",
    "Rival",
    "RivalError",
    "Run",
    "RunCancelled",
    "RunConflict",
    "RunFailed",
    "RunNotFound",
    "RunResult",
    "RunState",
    "Started",
    "Step",
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkflowInfo",
]
