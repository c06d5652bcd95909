"""Payload columns keep the text of a value: json instead of jsonb on Postgres, TEXT instead of JSON on SQLite.

jsonb sorts the keys of an object and rewrites numbers (1e300 becomes an integer, -0.0 loses its sign). On SQLite a
column declared JSON has numeric affinity, which rewrites a bare number (1.0 becomes 1, 10**30 becomes 1e30).
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# The filter of a wait stays jsonb: the engine alone reads it, as the right side of @>.
_COLUMNS = {
    "rival_attempts": ["error"],
    "rival_events": ["payload"],
    "rival_history": ["detail"],
    "rival_logs": ["fields"],
    "rival_runs": ["input", "result", "error"],
    "rival_schedules": ["input"],
    "rival_steps": ["result", "state", "error", "item", "progress"],
    "rival_workflows": ["plan", "input_schema"],
}


def upgrade() -> None:
    convert = _on_postgres if op.get_bind().dialect.name == "postgresql" else _on_sqlite
    for table, columns in _COLUMNS.items():
        convert(table, columns)
    if op.get_bind().dialect.name == "sqlite":
        _on_sqlite("rival_waits", ["filter"])


def _on_postgres(table: str, columns: list[str]) -> None:
    """One statement for a table: Postgres rewrites the table once."""
    changes = ", ".join(f"ALTER COLUMN {column} TYPE json USING {column}::json" for column in columns)
    op.execute(f"ALTER TABLE {table} {changes}")


def _on_sqlite(table: str, columns: list[str]) -> None:
    """SQLite cannot change a column's type: the table is copied."""
    with op.batch_alter_table(table, recreate="always") as batch:
        for column in columns:
            batch.alter_column(column, type_=sa.Text())
