"""The tables, once, for Postgres and SQLite. What may be in them is written as constraints, not hoped for."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    text,
)

from rival_client.db.types import BigId, Filter, Name
from rival_client.db.types import Payload as Payload
from rival_client.db.types import Timestamp as Timestamp
from rival_client.db.types import after as after
from rival_client.db.types import later as later
from rival_client.db.types import now as now
from rival_client.db.types import one_of as one_of
from rival_client.db.types import scalar_text as scalar_text
from rival_client.model.statuses import RUN_ACTIVE as RUN_ACTIVE
from rival_client.model.statuses import RUN_STATUSES as RUN_STATUSES
from rival_client.model.statuses import RUN_TERMINAL as RUN_TERMINAL
from rival_client.model.statuses import STEP_STATUSES as STEP_STATUSES
from rival_client.model.statuses import STEP_TERMINAL as STEP_TERMINAL

metadata = MetaData()


def _one_of(values: tuple[str, ...]) -> str:
    return f"status IN ({', '.join(repr(v) for v in values)})"


def _possible(open_: tuple[str, ...], if_open: str, ended: tuple[str, ...], if_ended: str) -> str:
    """Ended if and only if `completed_at` is set; what has ended is quiet. One short constraint instead of several:
    Postgres parses each again for every statement, and seven of them cost as much as the rest of a step's commit.
    """
    return (
        f"CASE WHEN completed_at IS NULL THEN {_one_of(open_)} AND ({if_open}) "
        f"ELSE ring_at IS NULL AND {_one_of(ended)} AND ({if_ended}) END"
    )


workflows = Table(
    "rival_workflows",
    metadata,
    Column("name", Name, primary_key=True),
    Column("version", Name, primary_key=True),
    Column("plan", Payload, nullable=False),
    Column("input_schema", Payload),
    Column("description", Text),
    Column("registered_at", Timestamp, nullable=False),
    # New runs take the version that was activated last: the one the newest worker brought.
    Column("activated_at", Timestamp, nullable=False),
    # Seconds for which its ended runs are kept; null: as long as the workers say.
    Column("retention", Float),
)

runs = Table(
    "rival_runs",
    metadata,
    Column("id", Name, primary_key=True),
    Column("workflow", Name, nullable=False),
    Column("version", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("token", Integer, nullable=False, server_default="0"),
    Column("input", Payload),
    Column("result", Payload),
    Column("error", Payload),
    Column("failed_step", Name),
    Column("parked", Text),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    Column("started_at", Timestamp),
    Column("completed_at", Timestamp),
    # Whose child it is: the run, and the step of it that has started this one.
    Column("parent_run_id", Name),
    Column("parent_path", Name),
    # Nothing of it is claimed by a message while this is set.
    Column("paused_at", Timestamp),
    CheckConstraint(
        _possible(
            ("pending", "running", "suspended"),
            "status <> 'running' OR started_at IS NOT NULL",
            RUN_TERMINAL,
            "status <> 'failed' OR error IS NOT NULL",
        ),
        name="rival_runs_possible",
    ),
)

# No foreign key to the run: each step's insert would lock and dirty the run's row. Steps are only ever
# inserted by a transition of their run, and retention deletes them before it.
steps = Table(
    "rival_steps",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    Column("kind", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("lost", Integer, nullable=False, server_default="0"),
    Column("execution_token", Integer, nullable=False, server_default="0"),
    Column("timeout_token", Integer, nullable=False, server_default="0"),
    Column("executor_id", Name),
    Column("result", Payload),
    Column("state", Payload),
    Column("error", Payload),
    Column("parked", Text),
    Column("due_at", Timestamp),
    Column("timeout_at", Timestamp),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    Column("started_at", Timestamp),
    Column("completed_at", Timestamp),
    # A composite's: how many lanes it has, how many of them have begun, how many have not ended.
    Column("total", Integer),
    Column("opened", Integer),
    Column("remaining", Integer),
    # The item of a for_each; the event that a wait received; the answer to an external step.
    Column("item", Payload),
    # Last heartbeat and progress, of steps that report them.
    Column("heartbeat_at", Timestamp),
    Column("progress", Payload),
    # Of a checkpoint: the position of its end among those that its flow received, and how many the flow had before it.
    Column("end_order", Integer),
    Column("begun_after", Integer),
    Column("paused", Boolean, nullable=False, server_default=text("false")),  # see `pausing`
    CheckConstraint(
        _possible(
            ("pending", "running", "waiting_retry", "waiting"),
            "(status <> 'running' OR executor_id IS NOT NULL) AND (status <> 'waiting_retry' OR due_at IS NOT NULL)",
            STEP_TERMINAL,
            "status <> 'failed' OR error IS NOT NULL",
        ),
        name="rival_steps_possible",
    ),
)

attempts = Table(
    "rival_attempts",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    # The token the attempt held: unique per start, also for attempts that were lost and don't count.
    Column("token", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error", Payload),
    Column("executor_id", Name),
    Column("started_at", Timestamp),
    Column("ended_at", Timestamp, nullable=False),
)

history = Table(
    "rival_history",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("run_id", Name, nullable=False),
    Column("path", Name),
    Column("what", Text, nullable=False),
    Column("detail", Payload),
    Column("at", Timestamp, nullable=False),
    # Who or what did it: an executor, an operator, another run, an event, the keeper.
    Column("actor", Text),
)

logs = Table(
    "rival_logs",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("run_id", Name, nullable=False),
    Column("path", Name, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("level", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("fields", Payload),
    Column("at", Timestamp, nullable=False),
)

executors = Table(
    "rival_executors",
    metadata,
    Column("id", Name, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("started_at", Timestamp, nullable=False),
    Column("beat_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp, nullable=False),
    # What is wrong with it, as it says itself: an event loop that is blocked.
    Column("problem", Text),
)

EVENT_STATUSES = ("sent", "kept", "consumed")

# Events. "sent": no worker has looked for waiting steps yet; "kept": no step waited for it.
events = Table(
    "rival_events",
    metadata,
    Column("id", Name, primary_key=True),
    Column("topic", Name, nullable=False),
    Column("key", Name),
    # Only for this run.
    Column("run_id", Name),
    Column("payload", Payload),
    Column("delivery", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("ring_at", Timestamp),
    Column("rings", Integer, nullable=False, server_default="0"),
    Column("created_at", Timestamp, nullable=False),
    Column("expires_at", Timestamp, nullable=False),
    CheckConstraint(
        f"{_one_of(EVENT_STATUSES)} AND delivery IN ('one', 'all') AND (status = 'sent') = (ring_at IS NOT NULL)",
        name="rival_events_possible",
    ),
)

# Steps that wait for an event. The token shows whether the step still waits.
waits = Table(
    "rival_waits",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    Column("topic", Name, primary_key=True),
    Column("key", Name),
    # The payload must hold this.
    Column("filter", Filter),
    Column("token", Integer, nullable=False),
    Column("created_at", Timestamp, nullable=False),
)

# Which step has got which event: one that is for all is for each run once.
deliveries = Table(
    "rival_deliveries",
    metadata,
    Column("event_id", Name, primary_key=True),
    Column("run_id", Name, primary_key=True),
    Column("path", Name, nullable=False),
    Column("at", Timestamp, nullable=False),
)

# Children whose parent does not wait for them any more: to be cancelled.
orphans = Table(
    "rival_orphans",
    metadata,
    Column("run_id", Name, primary_key=True),
    # Who has cancelled their parent, or what else has become of it.
    Column("by", Text, nullable=False),
    Column("at", Timestamp, nullable=False),
)

CATCH_UPS = ("none", "last", "all")

# What starts runs by the clock.
schedules = Table(
    "rival_schedules",
    metadata,
    Column("name", Name, primary_key=True),
    Column("workflow", Name, nullable=False),
    # Either a cron expression in a time zone, or every so many seconds.
    Column("cron", Text),
    Column("every", Integer),
    Column("timezone", Text, nullable=False),
    Column("catch_up", Name, nullable=False),
    Column("input", Payload),
    # The workflow's own: its definition says so, and takes it away.
    Column("own", Boolean, nullable=False),
    # No tick before this has been looked at.
    Column("next_at", Timestamp, nullable=False),
    Column("last_at", Timestamp),
    # Why it could not be fired.
    Column("error", Text),
    Column("created_at", Timestamp, nullable=False),
    CheckConstraint(
        f"(cron IS NULL) <> (every IS NULL) AND catch_up IN {CATCH_UPS!r}", name="rival_schedules_possible"
    ),
)

# The keeper's whole work list: what must be looked at, and when.
Index("rival_runs_ring", runs.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_steps_ring", steps.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_events_ring", events.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_schedules_next", schedules.c.next_at)
Index("rival_events_open", events.c.topic, events.c.created_at, postgresql_where=text("status <> 'consumed'"))
# Of one topic: how many are kept; and those of a key, kept or on their way, in their order.
Index(
    "rival_events_by_key",
    events.c.topic,
    events.c.status,
    events.c.key,
    events.c.created_at,
    events.c.id,
    postgresql_where=text("status <> 'consumed'"),
)
Index("rival_events_expiry", events.c.expires_at)
Index("rival_waits_topic", waits.c.topic, waits.c.key, waits.c.created_at)
Index("rival_runs_parent", runs.c.parent_run_id, postgresql_where=text("parent_run_id IS NOT NULL"))
Index("rival_deliveries_run", deliveries.c.run_id)
# There is none for the attempts in flight: its upkeep cost a quarter of each step's commit. When an executor dies
# they are found through the running runs.
# Listing, takeover and retention.
Index("rival_runs_recent", runs.c.created_at, runs.c.id)
Index("rival_runs_by_workflow", runs.c.workflow, runs.c.created_at, runs.c.id)
Index(
    "rival_runs_not_completed",
    runs.c.status,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=text("status <> 'completed'"),
)
# What retention may delete: children come into it when their parent has gone.
_KEPT_ALONE = text("completed_at IS NOT NULL AND parent_run_id IS NULL")
Index("rival_runs_ended", runs.c.workflow, runs.c.completed_at, postgresql_where=_KEPT_ALONE, sqlite_where=_KEPT_ALONE)
Index("rival_history_run", history.c.run_id, history.c.id)
Index("rival_logs_run", logs.c.run_id, logs.c.id)


def in_status(status: str) -> ColumnElement[bool]:
    """Of runs. As part of the statement and not as its parameter: when Postgres plans for any value, it can use an
    index that leaves some statuses out only if it sees which one is asked for.
    """
    return runs.c.status == bindparam(None, status, Text, literal_execute=True)
