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
    RunNotEnded,
    RunNotFound,
    TopicFull,
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
    from rival_client.model.rebuild import RebuiltRun, RebuiltStep, rebuild
    from rival_client.settings import Settings
    from rival_client.sql.events import EventRecord, Sent, TopicCount
    from rival_client.sql.recovery import Recovery
    from rival_client.sql.run_family import RunNode
    from rival_client.sql.run_search import RunFilter, Runs
    from rival_client.sql.schedules import ScheduleRecord

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
    "InvalidSetting",
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
    "UnknownWorkflow",
    "WaitTimeout",
    "WorkflowInfo",
    "WorkflowRegistry",
    "rebuild",
]

#: Found when first asked for: SQLAlchemy, psycopg, redis and kombu come with them, and neither a workflow file nor
#: `rival --help` should wait for these.
_LATE = {
    "AsyncRival": "api.async_client",
    "Bulk": "api.bulk",
    "BulkOutcome": "api.bulk",
    "EventRecord": "sql.events",
    "RebuiltRun": "model.rebuild",
    "RebuiltStep": "model.rebuild",
    "Recovery": "sql.recovery",
    "Rival": "api.client",
    "RunFilter": "sql.run_search",
    "RunNode": "sql.run_family",
    "Runs": "sql.run_search",
    "ScheduleRecord": "sql.schedules",
    "Sent": "sql.events",
    "Settings": "settings",
    "TopicCount": "sql.events",
    "rebuild": "model.rebuild",
}


if not TYPE_CHECKING:
    # A type checker would accept any name.
    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
