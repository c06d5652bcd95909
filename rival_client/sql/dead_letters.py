"""Dead letters: the steps that wait for an operator. The statements take an open connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select, tuple_

from rival_client.db.failure_tables import dead_letters
from rival_client.db.run_tables import runs
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model.dead_letters import DeadLetter, DeadLetterFilter
from rival_client.sql.history import HistoryWriter, record

#: Run ids in one statement.
BATCH = 500


def add_dead_letter(
    connection: Connection, run_id: str, path: str, error: dict[str, Any] | None, writer: HistoryWriter
) -> None:
    kind, message = (str((error or {}).get(name, "")) for name in ("type", "message"))
    workflow = connection.scalar(select(runs.c.workflow).where(runs.c.id == run_id))
    connection.execute(
        insert(dead_letters).values(
            run_id=run_id, path=path, workflow=workflow, error_type=kind, message=message, at=now()
        )
    )
    writer.add(entries.DEAD_LETTERED, path, error_type=kind)


def remove_redriven(connection: Connection, run_id: str, paths: Sequence[str], by: str) -> None:
    """These steps are run again."""
    which = (dead_letters.c.run_id == run_id, dead_letters.c.path.in_(paths))
    for path in connection.scalars(delete(dead_letters).where(*which).returning(dead_letters.c.path)).all():
        record(connection, run_id, path, entries.REDRIVEN, by=by)


def list_dead_letters(
    connection: Connection, chosen: DeadLetterFilter, limit: int, after: DeadLetter | None = None
) -> list[DeadLetter]:
    """The newest first."""
    order = (dead_letters.c.at, dead_letters.c.run_id, dead_letters.c.path)
    wanted = select(dead_letters).where(*_conditions(chosen)).order_by(*(column.desc() for column in order))
    if after is not None:
        wanted = wanted.where(tuple_(*order) < (after.at, after.run_id, after.path))
    return [DeadLetter(**row) for row in connection.execute(wanted.limit(limit)).mappings()]


def dead_letters_of(connection: Connection, run_ids: Sequence[str]) -> Iterator[DeadLetter]:
    """All of these runs, in batches."""
    for start in range(0, len(run_ids), BATCH):
        some = select(dead_letters).where(dead_letters.c.run_id.in_(run_ids[start : start + BATCH]))
        yield from (DeadLetter(**row) for row in connection.execute(some).mappings())


def drop_dead_letter(connection: Connection, run_id: str, path: str, by: str) -> bool:
    """Deletes a dead letter. Its run stays as it is."""
    which = (dead_letters.c.run_id == run_id, dead_letters.c.path == path)
    if connection.execute(delete(dead_letters).where(*which)).rowcount == 0:
        return False
    record(connection, run_id, path, entries.DEAD_LETTER_DROPPED, by=by)
    return True


def _conditions(chosen: DeadLetterFilter) -> Iterator[ColumnElement[bool]]:
    table = dead_letters.c
    equal = ((table.workflow, chosen.workflow), (table.run_id, chosen.run_id))
    yield from (column == value for column, value in equal if value is not None)
    if chosen.step is not None:
        yield or_(table.path == chosen.step, table.path.endswith(f"/{chosen.step}", autoescape=True))
    if chosen.error is not None:
        yield (table.error_type + ": " + table.message).icontains(chosen.error, autoescape=True)
    if chosen.since is not None:
        yield table.at >= chosen.since
    if chosen.until is not None:
        yield table.at < chosen.until
