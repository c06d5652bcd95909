"""Starts that find another run in their singleton place. The statements of each operation are a generator, which
gives a statement and gets its rows, so that every kind of connection can execute them (`rival_client.db.caller_tx`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Executable, Text, cast, insert, literal, select, update

from rival_client.db.log_tables import history
from rival_client.db.run_tables import runs
from rival_client.db.types import Payload, now
from rival_client.model import history_entries as entries
from rival_client.model.payload import serialise
from rival_client.model.starts.starts import Start

T = TypeVar("T")
#: Gives statements, gets their rows, and returns a value.
Statements = Generator[Executable, Sequence[Any], T]


def holder_of(start: Start) -> Statements[str | None]:
    """The run that keeps a start from its singleton place, or has its id already. None: it has ended since."""
    run_id = start.run_id
    if (yield select(runs.c.id).where(runs.c.id == run_id)):
        return run_id
    rows = yield select(runs.c.id).where(
        runs.c.workflow == start.workflow.name,
        runs.c.singleton == start.options.singleton,
        runs.c.completed_at.is_(None),
    )
    return str(rows[0][0]) if rows else None


def has_place(connection: Connection, run_id: str) -> bool:
    """Whether a locked run still has a singleton place."""
    its_own = (runs.c.id == run_id, runs.c.singleton.is_not(None), runs.c.completed_at.is_(None))
    return connection.scalar(select(runs.c.id).where(*its_own)) is not None


def leave_place(connection: Connection, run_id: str) -> None:
    """A run that is being cancelled gives its singleton place to another one, also while workers still undo it."""
    its_own = (runs.c.id == run_id, runs.c.completed_at.is_(None))
    connection.execute(update(runs).where(*its_own).values(singleton=None))


def skip_start(start: Start, holder: str) -> Statements[None]:
    """The history of the run that has the place says which start was skipped."""
    run_id = start.run_id
    detail = json_value(serialise({"run_id": run_id}))
    entry = select(runs.c.id, literal(entries.START_SKIPPED, Text), detail, now()).where(runs.c.id == holder)
    yield insert(history).from_select(["run_id", "what", "detail", "at"], entry)


def json_value(text: str) -> Any:
    # As text: a producer's own engine has a JSON serialiser of its own, which would make a string of it again.
    return cast(literal(text, Text), Payload)
