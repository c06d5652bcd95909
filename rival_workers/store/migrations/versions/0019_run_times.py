"""When runs begin at the earliest, and by when they must have ended."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Timestamp

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_runs", sa.Column("due_at", Timestamp))
    op.add_column("rival_runs", sa.Column("deadline_at", Timestamp))
