"""Checks the order in which each transaction of the portable statements takes its locks: see `rival_client.db.locks`.
Only statements that Rival itself executes are looked at, not those of a test.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

_TOPIC = re.compile(r"pg_advisory_xact_lock(_shared)?\(.*hashtext\(", re.S)
_RUN = re.compile(r"pg_advisory_xact_lock(_shared)?\(hashtextextended\(")
_TRIED_RUN = re.compile(r"pg_try_advisory_xact_lock\(hashtextextended\(")
_ROWS = re.compile(r"^\s*(?:UPDATE|DELETE FROM)\s+rival_(steps|runs)\b|FROM rival_(steps|runs)\b.*FOR UPDATE", re.S)
_KEY = "rival_lock_order"


class WrongOrder(AssertionError):
    """A statement takes a lock that must come before one that the transaction has."""


def locks_of(statement: str) -> str | None:
    """Which kind of lock the statement takes, and may wait for. "tried": the lock of a run, without waiting."""
    if _TRIED_RUN.search(statement):
        return "tried"
    if "SKIP LOCKED" in statement:
        return None
    if _TOPIC.search(statement) and "1919511916" not in statement:
        return "topic"
    if found := _RUN.search(statement):
        return "shared" if found[1] else "exclusive"
    rows = _ROWS.search(statement)
    return None if rows is None else f"{rows[1] or rows[2]} row"


def check(taken: list[str], lock: str) -> None:
    """Raise WrongOrder if the lock may not follow those that are taken."""
    if lock == "topic" and any(one != "topic" for one in taken):
        raise WrongOrder(f"a topic is locked after {taken}")
    if lock == "exclusive" and "exclusive" not in taken and any(one != "topic" for one in taken):
        raise WrongOrder(f"the exclusive lock of a run is taken after {taken}")
    if not lock.endswith("row") or not any(one.endswith("row") for one in taken):
        return
    of_run = [one for one in taken if one in ("shared", "exclusive", "tried")]
    if not of_run:
        raise WrongOrder(f"a {lock} is locked after {taken}, without the lock of the run")


@contextmanager
def checked() -> Iterator[None]:
    def on_execute(connection: Any, _: Any, statement: str, *rest: Any) -> None:
        lock = locks_of(statement) if connection.dialect.name == "postgresql" and _is_ours() else None
        transaction = connection.get_transaction()
        if lock is None or transaction is None or connection.get_isolation_level() == "AUTOCOMMIT":
            return
        taken = connection.info.setdefault(_KEY, {})
        mine = taken.setdefault(id(transaction), [])
        check(mine, lock)
        mine.append(lock)

    def on_end(connection: Any) -> None:
        connection.info.pop(_KEY, None)

    listeners = [("before_cursor_execute", on_execute), ("commit", on_end), ("rollback", on_end)]
    for name, listener in listeners:
        event.listen(Engine, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners:
            event.remove(Engine, name, listener)


def _is_ours() -> bool:
    """The statement is executed by Rival: the first frame above SQLAlchemy is not a test's."""
    frame: Any = sys._getframe(2)
    while frame is not None and "sqlalchemy" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and "/tests/" not in frame.f_code.co_filename
