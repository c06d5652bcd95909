"""Dead letters, and the retries that a run has used of its budget."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, Timestamp

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rival_dead_letters",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, primary_key=True),
        sa.Column("workflow", Name, nullable=False),
        sa.Column("error_type", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("at", Timestamp, nullable=False),
    )
    behind = ["at", "run_id", "path"]
    op.create_index("rival_dead_letters_recent", "rival_dead_letters", behind)
    op.create_index("rival_dead_letters_by_workflow", "rival_dead_letters", ["workflow", *behind])
    op.add_column("rival_runs", sa.Column("retries", sa.Integer, nullable=False, server_default="0"))
