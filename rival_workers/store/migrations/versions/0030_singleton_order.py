"""Pending runs with a singleton key, in the order of their starts."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_NOT_BEGUN = sa.text("status = 'pending' AND policies IS NOT NULL")


def upgrade() -> None:
    key, start = sa.text("(policies ->> 'singleton')"), sa.text("coalesce(due_at, created_at)")
    order = ["workflow", key, start, "created_at", "id"]
    op.create_index(
        "rival_runs_singleton_order", "rival_runs", order, postgresql_where=_NOT_BEGUN, sqlite_where=_NOT_BEGUN
    )


def downgrade() -> None:
    op.drop_index("rival_runs_singleton_order", "rival_runs")
