"""The options of steps beside the plan, so that a changed option is not another version."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import TextJson

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_workflows", sa.Column("policies", TextJson))
