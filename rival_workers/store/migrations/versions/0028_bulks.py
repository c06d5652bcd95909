"""Actions on many runs, with the outcome for each run."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, TextJson, Timestamp

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rival_bulks",
        sa.Column("id", Name, primary_key=True),
        sa.Column("verb", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("preview", Name),
        sa.Column("given", TextJson),
        sa.Column("runs", TextJson),
        sa.Column("commands", TextJson),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("ended", sa.Integer, nullable=False),
        sa.Column("refused", sa.Integer, nullable=False),
        sa.Column("started_at", Timestamp, nullable=False),
        sa.Column("beat_at", Timestamp, nullable=False),
        sa.Column("ended_at", Timestamp),
        sa.CheckConstraint("(state = 'running') = (ended_at IS NULL)", name="rival_bulks_possible"),
    )
    op.create_index("rival_bulks_newest", "rival_bulks", ["started_at", "id"])
    op.create_table(
        "rival_bulk_outcomes",
        sa.Column("bulk_id", Name, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("run_id", Name, nullable=False),
        sa.Column("workflow", Name, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("why", sa.Text),
        sa.Column("opened", TextJson),
        sa.Column("runs_again", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("rival_bulk_outcomes")
    op.drop_table("rival_bulks")
