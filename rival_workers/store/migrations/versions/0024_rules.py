"""Rules of runs and of the fleet, and what they have changed of the options of a step."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import TextJson, Timestamp

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_runs", sa.Column("policies", TextJson))
    op.add_column("rival_steps", sa.Column("policy", TextJson))
    op.add_column("rival_attempts", sa.Column("policy", TextJson))
    big_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "rival_rules",
        sa.Column("id", big_id, sa.Identity(always=True), primary_key=True),
        sa.Column("match", TextJson, nullable=False),
        sa.Column("options", TextJson, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("author", sa.Text),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("expires_at", Timestamp),
    )
    op.create_table(
        "rival_rulebook",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False, server_default="0"),
    )
    op.execute("INSERT INTO rival_rulebook (id, version) VALUES (1, 0)")
