"""Tables of operators' actions: the audit log, and verbs on many runs with their outcomes."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, Identity, Index, Integer, Table, Text, false

from rival_client.db.schema import metadata
from rival_client.db.types import BigId, Name, Payload, Timestamp

# What people have done that belongs to no run: schedules, events, starts, reveals. Verbs are in the histories of runs.
audit = Table(
    "rival_audit",
    metadata,
    Column("id", BigId, Identity(always=True), primary_key=True),
    Column("at", Timestamp, nullable=False),
    Column("actor", Text, nullable=False),
    Column("what", Text, nullable=False),
    # What it was done to: `schedule:nightly`.
    Column("about", Text),
    Column("detail", Payload),
)

# Actions on many runs. A process that ends leaves its action `running`; another one takes it over, with the next token,
# when `beat_at` is old.
bulks = Table(
    "rival_bulks",
    metadata,
    Column("id", Name, primary_key=True),
    Column("verb", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("preview", Name),
    # The arguments of the verb, and the runs that the preview has shown.
    Column("given", Payload),
    Column("runs", Payload),
    Column("commands", Payload),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("total", Integer, nullable=False),
    Column("ended", Integer, nullable=False),
    Column("refused", Integer, nullable=False),
    Column("started_at", Timestamp, nullable=False),
    Column("beat_at", Timestamp, nullable=False),
    Column("ended_at", Timestamp),
    # Compared by each transaction of the process that executes it. 0: of a version that did not take over.
    Column("token", Integer, nullable=False, server_default="0"),
    # The run that the verb is applied to: its id, workflow, status, and the last entry of its history before that.
    Column("doing", Payload),
    Column("stopping", Boolean, nullable=False, server_default=false()),
    CheckConstraint("(state = 'running') = (ended_at IS NULL)", name="rival_bulks_possible"),
)

bulk_outcomes = Table(
    "rival_bulk_outcomes",
    metadata,
    Column("bulk_id", Name, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("run_id", Name, nullable=False),
    Column("workflow", Name, nullable=False),
    Column("status", Text, nullable=False),
    # Why the run was refused; NULL: the verb was applied to it.
    Column("why", Text),
    Column("opened", Payload),
    Column("runs_again", Integer, nullable=False),
)

Index("rival_bulks_newest", bulks.c.started_at, bulks.c.id)
