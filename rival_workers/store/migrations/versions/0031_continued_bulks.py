"""Actions on many runs that another process continues: a fencing token, and the run that the verb is applied to."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import TextJson

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_bulks", sa.Column("token", sa.Integer, nullable=False, server_default="0"))
    op.add_column("rival_bulks", sa.Column("doing", TextJson))
    op.add_column("rival_bulks", sa.Column("stopping", sa.Boolean, nullable=False, server_default=sa.text("false")))


def downgrade() -> None:
    for name in ("stopping", "doing", "token"):
        op.drop_column("rival_bulks", name)
