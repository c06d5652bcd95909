"""A step keeps what it has done instead of failing."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import TextJson

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_steps", sa.Column("fallback", TextJson))
