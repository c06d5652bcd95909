"""Children that are still to be cancelled; and an index of what retention may delete."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Timestamp

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_KEPT_ALONE = sa.text("completed_at IS NOT NULL AND parent_run_id IS NULL")


def upgrade() -> None:
    op.create_table(
        "rival_orphans",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("at", Timestamp, nullable=False),
    )
    op.create_index(
        "rival_runs_ended",
        "rival_runs",
        ["workflow", "completed_at"],
        postgresql_where=_KEPT_ALONE,
        sqlite_where=_KEPT_ALONE,
    )
    op.drop_index("rival_runs_completed", "rival_runs")
