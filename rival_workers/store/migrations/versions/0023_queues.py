"""Queues and priorities of workflows, runs and steps; time limits of steps; what executors serve."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Timestamp

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
#: JSON, as text on SQLite: see 0010.
Payload = sa.Text().with_variant(sa.JSON(none_as_null=True), "postgresql")


def upgrade() -> None:
    for table in ("rival_workflows", "rival_runs", "rival_steps"):
        op.add_column(table, sa.Column("queue", Name))
        op.add_column(table, sa.Column("priority", sa.Integer))
    op.add_column("rival_steps", sa.Column("start_by", Timestamp))
    op.add_column("rival_steps", sa.Column("deadline_at", Timestamp))
    op.add_column("rival_tickets", sa.Column("queue", Name))
    op.add_column("rival_tickets", sa.Column("level", sa.Integer, nullable=False, server_default="0"))
    op.add_column("rival_executors", sa.Column("queues", Payload))
    op.add_column("rival_executors", sa.Column("slots", sa.Integer))
    op.add_column("rival_executors", sa.Column("busy", sa.Integer))
    op.add_column("rival_executors", sa.Column("workflows", Payload))
