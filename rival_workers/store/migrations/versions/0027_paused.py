"""Paused runs are found among any number of open ones."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_PAUSED = sa.text("paused_at IS NOT NULL AND completed_at IS NULL")


def upgrade() -> None:
    columns = ["created_at", "id"]
    op.create_index("rival_runs_paused", "rival_runs", columns, postgresql_where=_PAUSED, sqlite_where=_PAUSED)


def downgrade() -> None:
    op.drop_index("rival_runs_paused", "rival_runs")
