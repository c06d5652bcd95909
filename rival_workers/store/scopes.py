"""Parts of a run: a composite with all that belongs to it, and how all of that is locked."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Table, and_, or_, select

from rival_client.tables import STEP_TERMINAL, steps

#: The scope of one who has locked all that is open in the run.
WHOLE_RUN = ""


class ScopeNeeded(Exception):
    """Everything open below this path must be locked before anything else is."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Unsettled(Exception):
    """The scope moved while it was being locked."""


def begins(begin: str, table: Table = steps) -> ColumnElement[bool]:
    """Paths that begin like this, as a range that the primary key can serve."""
    return and_(table.c.path >= begin, table.c.path < begin[:-1] + chr(ord(begin[-1]) + 1))


def below(path: str, table: Table = steps) -> ColumnElement[bool]:
    """A composite and all that belongs to it."""
    return or_(table.c.path == path, *(begins(path + sign, table) for sign in "/[!"))


def is_below(path: str, scope: str) -> bool:
    return path == scope or path.startswith((f"{scope}/", f"{scope}[", f"{scope}!"))


def lock_scope(connection: Connection, run_id: str, scope: str) -> None:
    """Lock all that is open below a composite, and itself, from the leaves up. Rows are only ever added there by a
    transition of one of them, so once all are locked the set cannot change; Unsettled: it had changed before that.
    """
    open_paths = (
        select(steps.c.path)
        .where(steps.c.run_id == run_id, below(scope), steps.c.status.not_in(STEP_TERMINAL))
        .order_by(steps.c.path.desc())
    )
    locked = list(connection.scalars(open_paths.with_for_update()))
    if list(connection.scalars(open_paths)) != locked:
        raise Unsettled
