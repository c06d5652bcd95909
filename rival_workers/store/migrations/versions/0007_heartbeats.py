"""Signs of life of a step, and how far it has come."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import JsonbPayload as Payload
from rival_workers.store.migrations.frozen import Timestamp

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_steps", sa.Column("heartbeat_at", Timestamp))
    op.add_column("rival_steps", sa.Column("progress", Payload))
