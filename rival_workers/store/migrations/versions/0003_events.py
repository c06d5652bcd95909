"""Events, the steps that wait for them, and who has got which; runs that are children of others."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import JsonbPayload as Payload
from rival_workers.store.migrations.frozen import Timestamp

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "rival_events",
        sa.Column("id", Name, primary_key=True),
        sa.Column("topic", Name, nullable=False),
        sa.Column("key", Name),
        sa.Column("run_id", Name),
        sa.Column("payload", Payload),
        sa.Column("delivery", Name, nullable=False),
        sa.Column("status", Name, nullable=False),
        sa.Column("ring_at", Timestamp),
        sa.Column("rings", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("expires_at", Timestamp, nullable=False),
        sa.CheckConstraint(
            "status IN ('sent', 'kept', 'consumed') AND delivery IN ('one', 'all') AND "
            "(status = 'sent') = (ring_at IS NOT NULL)",
            name="rival_events_possible",
        ),
    )
    op.create_index("rival_events_ring", "rival_events", ["ring_at"], postgresql_where=sa.text("ring_at IS NOT NULL"))
    op.create_index(
        "rival_events_open",
        "rival_events",
        ["topic", "created_at"],
        postgresql_where=sa.text("status <> 'consumed'"),
    )
    op.create_index("rival_events_expiry", "rival_events", ["expires_at"])
    op.create_table(
        "rival_waits",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, primary_key=True),
        sa.Column("topic", Name, primary_key=True),
        sa.Column("key", Name),
        sa.Column("filter", Payload),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("created_at", Timestamp, nullable=False),
    )
    op.create_index("rival_waits_topic", "rival_waits", ["topic", "key", "created_at"])
    op.create_table(
        "rival_deliveries",
        sa.Column("event_id", Name, primary_key=True),
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, nullable=False),
        sa.Column("at", Timestamp, nullable=False),
    )
    op.create_index("rival_deliveries_run", "rival_deliveries", ["run_id"])
    op.add_column("rival_runs", sa.Column("parent_run_id", Name))
    op.add_column("rival_runs", sa.Column("parent_path", Name))
    op.create_index(
        "rival_runs_parent",
        "rival_runs",
        ["parent_run_id"],
        postgresql_where=sa.text("parent_run_id IS NOT NULL"),
    )
