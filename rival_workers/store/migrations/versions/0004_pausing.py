"""When an operator has paused a run."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Timestamp

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_runs", sa.Column("paused_at", Timestamp))
