"""Labels of runs, and options of schedules."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, TextJson, Timestamp

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_runs", sa.Column("labels", TextJson))
    op.add_column("rival_schedules", sa.Column("options", TextJson))
    op.create_table(
        "rival_labels",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("name", Name, primary_key=True),
        sa.Column("value", Name, nullable=False),
        sa.Column("created_at", Timestamp, nullable=False),
    )
    op.create_index("rival_labels_value", "rival_labels", ["name", "value", "created_at", "run_id"])
