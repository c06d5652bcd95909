"""The order in which a flow received the ends of its checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_steps", sa.Column("end_order", sa.Integer))
    op.add_column("rival_steps", sa.Column("begun_after", sa.Integer))
