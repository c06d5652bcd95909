"""Counts that stop at a cap, so that no count reads all runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, func, literal_column, select

from rival_client.db.run_tables import runs

CAP = 1000


@dataclass(frozen=True)
class Count:
    """`more`: there are more than that."""

    count: int
    more: bool = False

    @classmethod
    def together(cls, counts: Iterable[Count]) -> Count:
        found = list(counts)
        total = sum(one.count for one in found)
        return cls(min(total, CAP), total > CAP or any(one.more for one in found))


_NEWEST = (runs.c.created_at.desc(), runs.c.id.desc())


def capped(
    connection: Connection,
    *conditions: ColumnElement[bool],
    cap: int = CAP,
    order: Sequence[ColumnElement[Any]] = _NEWEST,
) -> Count:
    """The number of runs up to a cap. Conditions and order must be those of an index: without an order, Postgres may
    read the table until the cap is reached, which is to its end when few runs meet the conditions.
    """
    newest: Select[Any] = select(literal_column("1")).select_from(runs).where(*conditions)
    some = newest.order_by(*order).limit(cap + 1).subquery()
    found = connection.scalar(select(func.count()).select_from(some)) or 0
    return Count(min(found, cap), found > cap)


def count_of_run(connection: Connection, run_id: str, table: Table) -> Count:
    """The number of its history entries or log lines up to a cap: a part of an index, however many there are."""
    some = select(table.c.id).where(table.c.run_id == run_id).order_by(table.c.id).limit(CAP + 1).subquery()
    found = connection.scalar(select(func.count()).select_from(some)) or 0
    return Count(min(found, CAP), found > CAP)
