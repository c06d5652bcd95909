"""What a producer app imports: start durable runs, wait for them, cancel them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rival_client.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidArgument,
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
from rival_client.instance import AsyncStarted, Started
from rival_client.records import (
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

if TYPE_CHECKING:
    from rival_client.aio import AsyncRival
    from rival_client.bulk import Bulk, BulkOutcome
    from rival_client.client import Rival
    from rival_client.events import EventRecord, Sent, TopicCount
    from rival_client.listing import RunFilter, Runs
    from rival_client.rebuilding import RebuiltRun, RebuiltStep, rebuild
    from rival_client.recovery import Recovery
    from rival_client.registry import AsyncWorkflowRegistry, WorkflowRegistry
    from rival_client.schedules import ScheduleRecord
    from rival_client.settings import Settings
    from rival_client.tree import RunNode

#: The version of the distribution, which holds `rival_workers` too: pyproject.toml takes it from here.
__version__ = "0.1.0"

__all__ = [
    "AsyncRival",
    "AsyncStarted",
    "AsyncWorkflowRegistry",
    "Attempt",
    "Bulk",
    "BulkOutcome",
    "ConfigurationError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "EventRecord",
    "HistoryEntry",
    "InvalidArgument",
    "InvalidInput",
    "InvalidPayload",
    "InvalidToken",
    "LastError",
    "LogEntry",
    "NotPossible",
    "RebuiltRun",
    "RebuiltStep",
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
    "Settings",
    "Started",
    "Step",
    "TopicCount",
    "TopicFull",
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkflowInfo",
    "WorkflowRegistry",
    "rebuild",
]

#: Found when first asked for: SQLAlchemy, psycopg, redis and kombu come with them, and neither a workflow file nor
#: `rival --help` should wait for these.
_LATE = {
    "AsyncRival": "aio",
    "AsyncWorkflowRegistry": "registry",
    "Bulk": "bulk",
    "BulkOutcome": "bulk",
    "EventRecord": "events",
    "RebuiltRun": "rebuilding",
    "RebuiltStep": "rebuilding",
    "Recovery": "recovery",
    "Rival": "client",
    "RunFilter": "listing",
    "RunNode": "tree",
    "Runs": "listing",
    "ScheduleRecord": "schedules",
    "Sent": "events",
    "Settings": "settings",
    "TopicCount": "events",
    "WorkflowRegistry": "registry",
    "rebuild": "rebuilding",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
