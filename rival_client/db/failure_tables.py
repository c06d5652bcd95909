"""Tables of failures that concern operators and the fleet: dead letters, circuit breakers and what waits for them."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, Table, Text

from rival_client.db.schema import metadata
from rival_client.db.types import Name, Timestamp

# Steps with on_failure="dead_letter" that have failed. A row goes when the step is run again, or when it is dropped.
dead_letters = Table(
    "rival_dead_letters",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    Column("workflow", Name, nullable=False),
    Column("error_type", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("at", Timestamp, nullable=False),
)

Index("rival_dead_letters_recent", dead_letters.c.at, dead_letters.c.run_id, dead_letters.c.path)
Index(
    "rival_dead_letters_by_workflow",
    dead_letters.c.workflow,
    dead_letters.c.at,
    dead_letters.c.run_id,
    dead_letters.c.path,
)

BREAKER_STATES = ("closed", "open", "half_open")

# Circuit breakers that have counted a failure, or that an operator has opened.
breakers = Table(
    "rival_breakers",
    metadata,
    Column("name", Name, primary_key=True),
    Column("state", Name, nullable=False),
    # When the next attempt may probe; null while it is closed, or when an operator has opened it for good.
    Column("until", Timestamp),
    Column("opened", Integer, nullable=False, server_default="0"),
    Column("successes", Integer, nullable=False, server_default="0"),
    # The attempt that probes. It does as long as its step runs with this token.
    Column("probe_run", Name),
    Column("probe_path", Name),
    Column("probe_token", Integer),
    Column("changed_at", Timestamp, nullable=False),
    Column("changed_by", Text, nullable=False),
    CheckConstraint(
        f"state IN {BREAKER_STATES!r} AND (probe_run IS NULL OR state = 'half_open')", name="rival_breakers_possible"
    ),
)

# Failures that count, by a tenth of the breaker's window. Each executor has rows of its own, so that no two wait for
# one another.
breaker_failures = Table(
    "rival_breaker_failures",
    metadata,
    Column("name", Name, primary_key=True),
    Column("bucket", Timestamp, primary_key=True),
    Column("executor_id", Name, primary_key=True),
    Column("failures", Integer, nullable=False),
)

# Steps that wait since their circuit breaker is open. A row is stale when the step has another token: whether the step
# waits is only said by its own row.
breaker_waits = Table(
    "rival_breaker_waits",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    Column("token", Integer, nullable=False),
    # The breaker.
    Column("name", Name, nullable=False),
    Column("since", Timestamp, nullable=False),
)

Index(
    "rival_breaker_waits_queue",
    breaker_waits.c.name,
    breaker_waits.c.since,
    breaker_waits.c.run_id,
    breaker_waits.c.path,
)
