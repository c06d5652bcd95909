"""Paused schedules, the audit of what belongs to no run, and the list of all events."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import TextJson, Timestamp

BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_schedules", sa.Column("paused_at", Timestamp))
    op.add_column("rival_schedules", sa.Column("paused_by", sa.Text))
    op.create_table(
        "rival_audit",
        sa.Column("id", BigId, sa.Identity(always=True), primary_key=True),
        sa.Column("at", Timestamp, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("about", sa.Text),
        sa.Column("detail", TextJson),
    )
    op.create_index("rival_events_recent", "rival_events", ["created_at", "id"])
