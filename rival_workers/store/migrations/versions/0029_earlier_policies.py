"""Options of steps as they were before a version was registered again."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, TextJson, Timestamp

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rival_earlier_policies",
        sa.Column("workflow", Name, primary_key=True),
        sa.Column("version", Name, primary_key=True),
        sa.Column("until", Timestamp, primary_key=True),
        sa.Column("policies", TextJson),
    )


def downgrade() -> None:
    op.drop_table("rival_earlier_policies")
