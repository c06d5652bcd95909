"""Actions on many runs, as the dashboard keeps them: what was asked for, and the outcome for each run. They stay when
the process that does them ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rival_client.db.operator_tables import bulk_outcomes, bulks
from rival_client.db.types import after, now

#: Bulk actions that are kept, with their outcomes.
KEPT = 100
#: Seconds without an outcome after which the process that did it counts as ended.
SILENT = 30.0
#: Columns that a list does not need: with many runs they are large.
_LARGE = ("runs", "given", "commands")


def begin_bulk(connection: Connection, bulk_id: str, verb: str, by: str, **about: Any) -> None:
    """Deletes the oldest ones, with their outcomes. `about`: `runs`, `total`, `given`, `commands`, `preview`."""
    row = {"id": bulk_id, "verb": verb, "actor": by, "state": "running", "ended": 0, "refused": 0, **about}
    connection.execute(insert(bulks).values(started_at=now(), beat_at=now(), **row))
    newest = select(bulks.c.id).order_by(bulks.c.started_at.desc(), bulks.c.id.desc())
    old = connection.execute(newest.offset(KEPT).limit(KEPT)).scalars().all()
    connection.execute(delete(bulk_outcomes).where(bulk_outcomes.c.bulk_id.in_(old)))
    connection.execute(delete(bulks).where(bulks.c.id.in_(old)))


def add_outcome(connection: Connection, bulk_id: str, number: int, outcome: Mapping[str, Any]) -> None:
    """`outcome`: `run_id`, `workflow`, `status`, `why`, `opened`, `runs_again`."""
    connection.execute(insert(bulk_outcomes).values(bulk_id=bulk_id, number=number, **outcome))
    refused = bulks.c.refused + int(outcome["why"] is not None)
    counted = {"ended": number, "refused": refused, "beat_at": now()}
    connection.execute(update(bulks).where(bulks.c.id == bulk_id, bulks.c.state == "running").values(**counted))


def end_bulk(connection: Connection, bulk_id: str, state: str, error: str | None) -> None:
    how = {"state": state, "error": error, "ended_at": now()}
    connection.execute(update(bulks).where(bulks.c.id == bulk_id, bulks.c.state == "running").values(**how))


def read_bulk(connection: Connection, bulk_id: str) -> dict[str, Any] | None:
    """With `is_silent`: whether its process counts as ended."""
    silent = (bulks.c.beat_at < after(-SILENT)).label("is_silent")
    found = connection.execute(select(bulks, silent).where(bulks.c.id == bulk_id)).mappings().one_or_none()
    return None if found is None else {**found}


def newest_bulks(connection: Connection, limit: int = KEPT) -> list[dict[str, Any]]:
    """The newest first, without what is large."""
    silent = (bulks.c.beat_at < after(-SILENT)).label("is_silent")
    columns = [column for column in bulks.columns if column.name not in _LARGE]
    newest = select(*columns, silent).order_by(bulks.c.started_at.desc(), bulks.c.id.desc())
    return [{**row} for row in connection.execute(newest.limit(limit)).mappings()]


def read_outcomes(connection: Connection, bulk_id: str, limit: int) -> list[dict[str, Any]]:
    """The first ones, in the order in which they came."""
    columns = [column for column in bulk_outcomes.columns if column.name not in ("bulk_id", "number")]
    found = select(*columns).where(bulk_outcomes.c.bulk_id == bulk_id).order_by(bulk_outcomes.c.number)
    return [{**row} for row in connection.execute(found.limit(limit)).mappings()]


def runs_with_outcome(connection: Connection, bulk_id: str) -> set[str]:
    return set(connection.execute(select(bulk_outcomes.c.run_id).where(bulk_outcomes.c.bulk_id == bulk_id)).scalars())
