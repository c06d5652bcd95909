"""Circuit breakers, and the failures that they count."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, Timestamp

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rival_breakers",
        sa.Column("name", Name, primary_key=True),
        sa.Column("state", Name, nullable=False),
        sa.Column("until", Timestamp),
        sa.Column("opened", sa.Integer, nullable=False, server_default="0"),
        sa.Column("successes", sa.Integer, nullable=False, server_default="0"),
        sa.Column("probe_run", Name),
        sa.Column("probe_path", Name),
        sa.Column("probe_token", sa.Integer),
        sa.Column("changed_at", Timestamp, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.CheckConstraint(
            "state IN ('closed', 'open', 'half_open') AND (probe_run IS NULL OR state = 'half_open')",
            name="rival_breakers_possible",
        ),
    )
    op.create_table(
        "rival_breaker_failures",
        sa.Column("name", Name, primary_key=True),
        sa.Column("bucket", Timestamp, primary_key=True),
        sa.Column("executor_id", Name, primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
    )
