"""Steps of a paused run are marked, so that the guard of a transition sees a pause on the row that it locks."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rival_steps", sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.text("false")))
    paused = "SELECT id FROM rival_runs WHERE paused_at IS NOT NULL AND completed_at IS NULL"
    op.execute(f"UPDATE rival_steps SET paused = true WHERE completed_at IS NULL AND run_id IN ({paused})")
