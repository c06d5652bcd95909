"""Appending to a run's log, in order. Whoever follows a log asks for what comes after the last id it has seen; so the
ids of a run must become visible in their order, also when several steps of it write at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, text

from rival_client.db.tables import logs, runs
from rival_client.model.payload import serialise
from rival_client.model.records import LogEntry

# One statement in autocommit: the writers of a run take turns by the lock, and a writer that freezes holds it no longer
# than the server needs. The sort is below the insert, so ids are drawn after the lock and in this order.
_APPEND = text("""
WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(1919511916, hashtext(:run_id)))
INSERT INTO rival_logs (run_id, path, attempt, level, message, fields, at)
SELECT :run_id, e.path, e.attempt, e.level, e.message, CAST(e.fields AS json), e.at
FROM turn, unnest(CAST(:paths AS text[]), CAST(:attempts AS integer[]), CAST(:levels AS text[]),
                  CAST(:messages AS text[]), CAST(:fields AS text[]), CAST(:ats AS timestamptz[]))
           WITH ORDINALITY AS e(path, attempt, level, message, fields, at, place)
WHERE EXISTS (SELECT 1 FROM rival_runs WHERE id = :run_id)
ORDER BY e.place
""")


def append(connection: Connection, run_id: str, entries: Sequence[LogEntry]) -> None:
    """Nothing when the run is gone: retention would never find entries that come after it."""
    if connection.dialect.name == "postgresql":
        connection.execute(_APPEND, {"run_id": run_id, **_columns(entries)})
    elif connection.execute(select(runs.c.id).where(runs.c.id == run_id)).first() is not None:
        connection.execute(insert(logs), [{"run_id": run_id, **_row(entry)} for entry in entries])


def without_stored(connection: Connection, run_id: str, entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Those that did not land when the answer to their append was lost. An attempt's entries differ in their times."""
    first = min(entry.at for entry in entries)
    found = connection.execute(
        select(logs.c.path, logs.c.attempt, logs.c.at).where(logs.c.run_id == run_id, logs.c.at >= first)
    )
    stored = {(row.path, row.attempt, row.at) for row in found}
    return [entry for entry in entries if (entry.path, entry.attempt, entry.at) not in stored]


def _columns(entries: Sequence[LogEntry]) -> dict[str, list[Any]]:
    return {
        "paths": [e.path for e in entries],
        "attempts": [e.attempt for e in entries],
        "levels": [e.level for e in entries],
        "messages": [e.message for e in entries],
        "fields": [serialise(e.fields) for e in entries],
        "ats": [e.at for e in entries],
    }


def _row(entry: LogEntry) -> dict[str, Any]:
    return {
        "path": entry.path, "attempt": entry.attempt, "level": entry.level,
        "message": entry.message, "fields": entry.fields, "at": entry.at,
    }  # fmt: skip
