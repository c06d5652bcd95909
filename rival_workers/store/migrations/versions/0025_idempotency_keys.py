"""Idempotency keys of steps: who works on a key, and the results of those that have ended."""

import sqlalchemy as sa
from alembic import op

from rival_workers.store.migrations.frozen import Name, TextJson, Timestamp

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    big_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "rival_idempotency_keys",
        sa.Column("id", big_id, sa.Identity(always=True), primary_key=True),
        sa.Column("digest", Name, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("workflow", Name),
        sa.Column("step", Name),
        sa.Column("run_id", Name),
        sa.Column("path", Name),
        sa.Column("holder", Name),
        sa.Column("fingerprint", Name),
        sa.Column("ttl", sa.Float, nullable=False),
        sa.Column("result", TextJson),
        sa.Column("created_at", Timestamp, nullable=False),
        sa.Column("completed_at", Timestamp),
        sa.Column("expires_at", Timestamp),
        sa.CheckConstraint(
            "(run_id IS NULL) = (path IS NULL) AND (run_id IS NULL) = (holder IS NULL) "
            "AND (expires_at IS NULL) = (run_id IS NOT NULL AND completed_at IS NULL)",
            name="rival_idempotency_keys_possible",
        ),
    )
    op.create_index("rival_idempotency_keys_digest", "rival_idempotency_keys", ["digest"], unique=True)
    _partial("owner", ["run_id", "path"], "expires_at IS NULL")
    _partial("expiry", ["expires_at"], "expires_at IS NOT NULL")
    op.create_index("rival_idempotency_keys_recent", "rival_idempotency_keys", ["created_at", "id"])


def _partial(name: str, columns: list[str], which: str) -> None:
    where = sa.text(which)
    op.create_index(
        f"rival_idempotency_keys_{name}",
        "rival_idempotency_keys",
        columns,
        postgresql_where=where,
        sqlite_where=where,
    )
