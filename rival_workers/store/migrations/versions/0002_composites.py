"""Composites: the counts of their joins, and the items of a for_each."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import JsonbPayload as Payload

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("total", "opened", "remaining"):
        op.add_column("rival_steps", sa.Column(name, sa.Integer))
    op.add_column("rival_steps", sa.Column("item", Payload))
