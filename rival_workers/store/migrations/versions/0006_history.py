"""Who or what did it: the history tells of every transition now."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_history", sa.Column("actor", sa.Text))
