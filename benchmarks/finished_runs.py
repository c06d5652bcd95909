"""Fills Rival's tables with finished runs: copies of the rows of one that really ran, made in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from benchmarks.lines import progress

CHUNK = 100_000
#: Between one copy and the next, so that indexes on times look as they do in life and retention stays away.
APART_S = 0.01
RUN_ID = {"rival_runs": "id", "rival_steps": "run_id", "rival_attempts": "run_id", "rival_history": "run_id"}


@dataclass(frozen=True)
class CopyOf:
    """One table of which a run has rows, and the columns that a copy must bring."""

    table: str
    columns: Sequence[tuple[str, str]]

    def statement(self) -> sql.Composed:
        """Insert the copies first … last (%s) of the rows of the run %s."""
        names = [sql.Identifier(name) for name, _ in self.columns]
        values = [self._value(name, kind) for name, kind in self.columns]
        return sql.SQL(
            "INSERT INTO {table} ({names}) SELECT {values} FROM {table} AS t, generate_series(%s::int, %s::int) AS n"
            " WHERE t.{run} = %s ORDER BY n DESC"
        ).format(
            table=sql.Identifier(self.table),
            names=sql.SQL(", ").join(names),
            values=sql.SQL(", ").join(values),
            run=sql.Identifier(RUN_ID[self.table]),
        )

    def _value(self, name: str, kind: str) -> sql.Composable:
        if name == RUN_ID[self.table]:
            return sql.SQL("lpad(to_hex(1000000000000 - n), 12, '0') || left(md5(n::text), 20)")
        column = sql.SQL("t.{}").format(sql.Identifier(name))
        if kind.startswith("timestamp"):
            return sql.SQL("{} - make_interval(secs => {} * n)").format(column, sql.Literal(APART_S))
        return column


def copyable_columns(connection: psycopg.Connection, table: str) -> list[tuple[str, str]]:
    """All columns but those that the database fills in by itself."""
    rows = connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = %s AND is_identity = 'NO' AND is_generated = 'NEVER'"
        " AND coalesce(column_default, '') NOT LIKE 'nextval%%' ORDER BY ordinal_position",
        [table],
    )
    return [(str(name), str(kind)) for name, kind in rows]


def fill(url: str, run_id: str, count: int) -> None:
    """`count` finished copies of the finished run `run_id` with all its rows, then statistics and a checkpoint."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        copies = [CopyOf(table, copyable_columns(connection, table)) for table in RUN_ID]
        for first in range(1, count + 1, CHUNK):
            last = min(first + CHUNK - 1, count)
            for copy in copies:
                connection.execute(copy.statement(), [first, last, run_id])
            progress("rival", f"{last:,} of {count:,} finished runs inserted")
        for table in RUN_ID:
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
        connection.execute("CHECKPOINT")
