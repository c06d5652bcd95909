"""Parts of a run: a composite with all that belongs to it."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_, or_

from rival_client.db.tables import steps


def begins(begin: str, table: Table = steps) -> ColumnElement[bool]:
    """Paths that begin like this, as a range that the primary key can serve."""
    return and_(table.c.path >= begin, table.c.path < begin[:-1] + chr(ord(begin[-1]) + 1))


def below(path: str, table: Table = steps) -> ColumnElement[bool]:
    """A composite and all that belongs to it."""
    return or_(table.c.path == path, *(begins(path + sign, table) for sign in "/[!"))


def is_below(path: str, scope: str) -> bool:
    return path == scope or path.startswith((f"{scope}/", f"{scope}[", f"{scope}!"))
