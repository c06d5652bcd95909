"""Steps that wait because their circuit breaker is open, found by its name."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, Timestamp

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rival_breaker_waits",
        sa.Column("run_id", Name, primary_key=True),
        sa.Column("path", Name, primary_key=True),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("name", Name, nullable=False),
        sa.Column("since", Timestamp, nullable=False),
    )
    op.create_index("rival_breaker_waits_queue", "rival_breaker_waits", ["name", "since", "run_id", "path"])


def downgrade() -> None:
    op.drop_table("rival_breaker_waits")
