"""Schedules, and how long a workflow's ended runs are kept."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import JsonbPayload as Payload
from rival_workers.store.migrations.frozen import Timestamp

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "rival_schedules",
        sa.Column("name", Name, primary_key=True),
        sa.Column("workflow", Name, nullable=False),
        sa.Column("cron", sa.Text),
        sa.Column("every", sa.Integer),
        sa.Column("timezone", sa.Text, nullable=False),
        sa.Column("catch_up", Name, nullable=False),
        sa.Column("input", Payload),
        sa.Column("own", sa.Boolean, nullable=False),
        sa.Column("next_at", Timestamp, nullable=False),
        sa.Column("last_at", Timestamp),
        sa.Column("error", sa.Text),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.CheckConstraint(
            "(cron IS NULL) <> (every IS NULL) AND catch_up IN ('none', 'last', 'all')",
            name="rival_schedules_possible",
        ),
    )
    op.create_index("rival_schedules_next", "rival_schedules", ["next_at"])
    op.add_column("rival_workflows", sa.Column("retention", sa.Float))
