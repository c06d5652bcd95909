"""Tables of workflows, their runs and what belongs to a run: steps, attempts, orphans."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    Table,
    Text,
    bindparam,
    func,
    literal_column,
    text,
)

from rival_client.db.schema import metadata, possible
from rival_client.db.types import Name, Payload, Slots, Timestamp
from rival_client.model.statuses import RUN_ACTIVE, RUN_TERMINAL, STEP_OPEN, STEP_TERMINAL

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
    # Seconds for which its ended runs are kept; null: the setting of the workers.
    Column("retention", Float),
    # The options of its steps; replaced when the version is registered again.
    Column("policies", Payload),
    # Of its runs, unless a start says otherwise. Null: the fleet's own queue, normal priority.
    Column("queue", Name),
    Column("priority", Integer),
)

# Policies that were replaced when the version was registered again. They explain attempts that began before `until`.
earlier_policies = Table(
    "rival_earlier_policies",
    metadata,
    Column("workflow", Name, primary_key=True),
    Column("version", Name, primary_key=True),
    Column("until", Timestamp, primary_key=True),
    Column("policies", Payload),
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
    # Retries of its steps that have a budget.
    Column("retries", Integer, nullable=False, server_default="0"),
    # It does not begin before this.
    Column("due_at", Timestamp),
    # It must have ended by then. While it is open, `ring_at` is not later.
    Column("deadline_at", Timestamp),
    # Only one open run of the workflow has it.
    Column("singleton", Name),
    # While it is pending, starts with this key become part of it; and how many have.
    Column("gather_key", Name),
    Column("gathered", Integer),
    # Names with a text each; `rival_labels` has them too, for finding runs.
    Column("labels", Payload),
    # Rules for its steps, given with its start.
    Column("policies", Payload),
    # The gates at which it uses a slot of a limit, from its start to its end.
    Column("slots", Slots),
    # Where its start message goes: a queue (null: the fleet's own) and a level (null: normal), which its steps inherit.
    Column("queue", Name),
    Column("priority", Integer),
    CheckConstraint(
        possible(
            RUN_ACTIVE,
            "(status <> 'running' OR started_at IS NOT NULL) AND (slots IS NULL OR status <> 'pending')",
            RUN_TERMINAL,
            "(status <> 'failed' OR error IS NOT NULL) AND slots IS NULL",
        ),
        name="rival_runs_possible",
    ),
)

# The labels of runs, in the order in which runs are listed. Written with the run and never changed.
labels = Table(
    "rival_labels",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("name", Name, primary_key=True),
    Column("value", Name, nullable=False),
    # The run's.
    Column("created_at", Timestamp, nullable=False),
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
    # What it did instead of failing, and why: once in its life.
    Column("fallback", Payload),
    Column("paused", Boolean, nullable=False, server_default=text("false")),  # see `sql.runs.pause_run`
    # What rules of the run or of the fleet have changed of its options, in its last attempt.
    Column("policy", Payload),
    # The gates at which it uses a slot of a limit: only while it runs, or an external system does its work.
    Column("slots", Slots),
    # Where its messages go: a queue (null: the fleet's own) and a level (null: that of the run).
    Column("queue", Name),
    Column("priority", Integer),
    # When its first attempt must have begun, and when the step must have ended; null: no limit.
    Column("start_by", Timestamp),
    Column("deadline_at", Timestamp),
    CheckConstraint(
        possible(
            STEP_OPEN,
            "(status <> 'running' OR executor_id IS NOT NULL) AND (status <> 'waiting_retry' OR due_at IS NOT NULL) "
            "AND (slots IS NULL OR status IN ('running', 'waiting'))",
            STEP_TERMINAL,
            "(status <> 'failed' OR error IS NOT NULL) AND slots IS NULL",
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
    # What rules of the run or of the fleet had changed of the step's options in this attempt.
    Column("policy", Payload),
)

# Children whose parent does not wait for them any more, and which remain to be cancelled.
orphans = Table(
    "rival_orphans",
    metadata,
    Column("run_id", Name, primary_key=True),
    # The operator or run on whose behalf the child is cancelled.
    Column("by", Text, nullable=False),
    Column("at", Timestamp, nullable=False),
)

# The keeper's whole work list: what must be looked at, and when.
Index("rival_runs_ring", runs.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_steps_ring", steps.c.ring_at, postgresql_where=text("ring_at IS NOT NULL"))
Index("rival_labels_value", labels.c.name, labels.c.value, labels.c.created_at, labels.c.run_id)
Index("rival_runs_parent", runs.c.parent_run_id, postgresql_where=text("parent_run_id IS NOT NULL"))
_SINGLE = text("singleton IS NOT NULL AND completed_at IS NULL")
Index(
    "rival_runs_singleton",
    runs.c.workflow,
    runs.c.singleton,
    unique=True,
    postgresql_where=_SINGLE,
    sqlite_where=_SINGLE,
)
# The runs with a singleton key that have not begun, in the order of their starts.
SINGLETON_KEY: ColumnElement[str] = literal_column("(policies ->> 'singleton')", Text)
GOES_FIRST = literal_column("(policies ->> 'goes_first')", Text).is_not(None)
STARTED_AT = func.coalesce(runs.c.due_at, runs.c.created_at, type_=Timestamp())
NOT_BEGUN = text("status = 'pending' AND policies IS NOT NULL")
Index(
    "rival_runs_singleton_order",
    runs.c.workflow,
    SINGLETON_KEY,
    STARTED_AT,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=NOT_BEGUN,
    sqlite_where=NOT_BEGUN,
)
GATHERS = text("gather_key IS NOT NULL AND status = 'pending'")
Index(
    "rival_runs_gather",
    runs.c.workflow,
    runs.c.gather_key,
    unique=True,
    postgresql_where=GATHERS,
    sqlite_where=GATHERS,
)
# Attempts in flight have no index: its upkeep cost a quarter of each step's commit. When an executor dies, they are
# found through the running runs.
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
# Few runs are paused, however many are open.
_PAUSED = text("paused_at IS NOT NULL AND completed_at IS NULL")
Index("rival_runs_paused", runs.c.created_at, runs.c.id, postgresql_where=_PAUSED, sqlite_where=_PAUSED)
# What retention may delete: children come into it when their parent has gone.
_KEPT_ALONE = text("completed_at IS NOT NULL AND parent_run_id IS NULL")
Index("rival_runs_ended", runs.c.workflow, runs.c.completed_at, postgresql_where=_KEPT_ALONE, sqlite_where=_KEPT_ALONE)


def in_status(status: str) -> ColumnElement[bool]:
    """Of runs. As part of the statement and not as its parameter: when Postgres plans for any value, it can use an
    index that leaves some statuses out only if it sees which one is asked for.
    """
    return runs.c.status == bindparam(None, status, Text, literal_execute=True)
