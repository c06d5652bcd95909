"""Limits: what is allowed, what is in use for each key, what waits; and the slots that a row uses."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from rival_workers.store.migrations.frozen import Timestamp

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Slots = postgresql.ARRAY(sa.BigInteger).with_variant(sa.Text(), "sqlite")

_POSSIBLE = {
    "rival_runs": "CASE WHEN completed_at IS NULL THEN status IN ('pending', 'running', 'suspended') AND "
    "((status <> 'running' OR started_at IS NOT NULL) AND (slots IS NULL OR status <> 'pending')) "
    "ELSE ring_at IS NULL AND status IN ('completed', 'failed', 'cancelled') AND "
    "((status <> 'failed' OR error IS NOT NULL) AND slots IS NULL) END",
    "rival_steps": "CASE WHEN completed_at IS NULL THEN status IN ('pending', 'running', 'waiting_retry', 'waiting') "
    "AND ((status <> 'running' OR executor_id IS NOT NULL) AND (status <> 'waiting_retry' OR due_at IS NOT NULL) "
    "AND (slots IS NULL OR status IN ('running', 'waiting'))) "
    "ELSE ring_at IS NULL AND status IN ('completed', 'skipped', 'failed', 'cancelled') AND "
    "((status <> 'failed' OR error IS NOT NULL) AND slots IS NULL) END",
}


def upgrade() -> None:
    _limits()
    _gates()
    _tickets()
    for table, condition in _POSSIBLE.items():
        name = f"{table}_possible"
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("slots", Slots))
            batch.drop_constraint(name, type_="check")
            batch.create_check_constraint(name, sa.text(condition))


def _limits() -> None:
    op.create_table(
        "rival_limits",
        sa.Column("name", Name, primary_key=True),
        sa.Column("max", sa.Integer, nullable=False),
        sa.Column("per", sa.Float),
        sa.Column("burst", sa.Integer, nullable=False, server_default="0"),
        sa.Column("shards", sa.SmallInteger, nullable=False, server_default="1"),
        sa.Column("defined_max", sa.Integer),
        sa.Column("set_by", sa.Text),
        sa.Column("updated_at", Timestamp, nullable=False),
    )


def _gates() -> None:
    op.create_table(
        "rival_gates",
        sa.Column("id", BigId, sa.Identity(always=True), primary_key=True),
        sa.Column("name", Name, nullable=False),
        sa.Column("key", Name, nullable=False, server_default=""),
        sa.Column("shard", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("shards", sa.SmallInteger, nullable=False, server_default="1"),
        sa.Column("max", sa.Integer, nullable=False),
        sa.Column("used", sa.Integer, nullable=False, server_default="0"),
        sa.Column("gap", sa.Float),
        sa.Column("slack", sa.Float),
        sa.Column("next_start", sa.Float, nullable=False, server_default="0"),
        sa.Column("touched_at", Timestamp, nullable=False),
        sa.CheckConstraint("used >= 0 AND (gap IS NULL) = (slack IS NULL)", name="rival_gates_possible"),
        postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 500},
    )
    op.create_index("rival_gates_key", "rival_gates", ["name", "key", "shard"], unique=True)


def _tickets() -> None:
    op.create_table(
        "rival_tickets",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, primary_key=True),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("gate", BigId, nullable=False),
        sa.Column("base", sa.Float, nullable=False),
        sa.Column("rank", sa.Float, nullable=False),
        sa.Column("fair_group", Name),
        sa.Column("workflow", Name, nullable=False),
        sa.Column("version", Name, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
        sa.Column("lost", sa.Integer, nullable=False, server_default="0"),
        sa.Column("granted_at", Timestamp),
        sa.Column("slot", BigId),
        sa.Column("due_at", Timestamp),
        sa.Column("ring_at", Timestamp),
        sa.Column("rings", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.CheckConstraint(
            "granted_at IS NOT NULL OR (slot IS NULL AND ring_at IS NULL)", name="rival_tickets_possible"
        ),
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
    )
    indexes = {
        "rival_tickets_waiting": (["gate", "rank", "run_id", "path"], "granted_at IS NULL"),
        "rival_tickets_group": (["gate", "fair_group", "base"], "granted_at IS NULL AND fair_group IS NOT NULL"),
        "rival_tickets_ring": (["ring_at"], "ring_at IS NOT NULL"),
    }
    for name, (columns, which) in indexes.items():
        where = sa.text(which)
        op.create_index(name, "rival_tickets", columns, postgresql_where=where, sqlite_where=where)
