"""The events of a key in their order, and how many a topic keeps."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "rival_events_by_key",
        "rival_events",
        ["topic", "status", "key", "created_at", "id"],
        postgresql_where=sa.text("status <> 'consumed'"),
    )
