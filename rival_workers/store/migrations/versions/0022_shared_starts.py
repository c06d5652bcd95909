"""Singleton runs, and pending runs that gather several starts."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_SINGLE = sa.text("singleton IS NOT NULL AND completed_at IS NULL")
_GATHERS = sa.text("gather_key IS NOT NULL AND status = 'pending'")


def upgrade() -> None:
    op.add_column("rival_runs", sa.Column("singleton", Name))
    op.add_column("rival_runs", sa.Column("gather_key", Name))
    op.add_column("rival_runs", sa.Column("gathered", sa.Integer))
    _unique("rival_runs_singleton", ["workflow", "singleton"], _SINGLE)
    _unique("rival_runs_gather", ["workflow", "gather_key"], _GATHERS)


def _unique(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "rival_runs", columns, unique=True, postgresql_where=where, sqlite_where=where)
