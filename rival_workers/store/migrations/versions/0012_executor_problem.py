"""What is wrong with an executor, as it says itself with its heartbeat."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_executors", sa.Column("problem", sa.Text))
