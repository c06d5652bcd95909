"""What a producer app imports: start durable runs, wait for them, cancel them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rival_client.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidInput,
    InvalidPayload,
    NotPossible,
    RivalError,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    UnknownWorkflow,
    WaitTimeout,
)
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

if TYPE_CHECKING:
    from rival_client.aio import AsyncRival
    from rival_client.client import Rival
    from rival_client.events import EventRecord, Sent
    from rival_client.recovery import Recovery
    from rival_client.registry import AsyncWorkflowRegistry, WorkflowRegistry
    from rival_client.schedules import ScheduleRecord

__all__ = [
    "AsyncRival",
    "AsyncWorkflowRegistry",
    "Attempt",
    "ConfigurationError",
    "DatabaseUnavailable",
    "EventRecord",
    "HistoryEntry",
    "InvalidInput",
    "InvalidPayload",
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
    "RunNotEnded",
    "RunNotFound",
    "RunResult",
    "RunState",
    "ScheduleRecord",
    "Sent",
    "Started",
    "Step",
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkflowInfo",
    "WorkflowRegistry",
]

#: Found when first asked for: SQLAlchemy, psycopg, redis and kombu come with them, and neither a workflow file nor
#: `rival --help` should wait for these.
_LATE = {
    "AsyncRival": "aio",
    "AsyncWorkflowRegistry": "registry",
    "EventRecord": "events",
    "Recovery": "recovery",
    "Rival": "client",
    "ScheduleRecord": "schedules",
    "Sent": "events",
    "WorkflowRegistry": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
