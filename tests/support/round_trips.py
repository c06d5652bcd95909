"""Counts what a block of code asks of the database: each statement and commit through SQLAlchemy, and each call of a
prepared statement. Only of the thread that runs the block: a heartbeat beside it is not its work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from rival_workers.store.interface import Store


@contextmanager
def round_trips(store: Store) -> Iterator[list[str]]:
    """What is asked within the block, in order: SQL of SQLAlchemy, "commit", names of prepared statements."""
    asked: list[str] = []
    thread = threading.get_ident()

    def count(what: str) -> None:
        if threading.get_ident() == thread:
            asked.append(what)

    hooks: dict[str, Any] = {
        "before_cursor_execute": lambda *args: count(args[2]),
        "commit": lambda _: count("commit"),
    }
    engine: Any = store.database.engine  # type: ignore[attr-defined]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for name, hook in hooks.items():
            event.listen(engine, name, hook)
            stack.callback(event.remove, engine, name, hook)
        if (hot := getattr(store, "_prepared", None)) is not None:
            _count_prepared(patch, hot, count)
        yield asked


def _count_prepared(patch: pytest.MonkeyPatch, hot: Any, count: Any) -> None:
    fetch, fetch_in_turn, fetch_each = hot.fetch, hot.fetch_in_turn, hot.fetch_each

    def counted(statement: Any, values: Any) -> Any:
        count(statement.name.decode())
        return fetch(statement, values)

    def counted_in_turn(first: Any, second: Any, values: Any) -> Any:
        count(second.name.decode())
        return fetch_in_turn(first, second, values)

    def counted_each(calls: Any) -> Any:
        count(f"{len(calls)} together, at last {calls[-1][0].name.decode()}")
        return fetch_each(calls)

    patch.setattr(hot, "fetch", counted)
    patch.setattr(hot, "fetch_each", counted_each)
    patch.setattr(hot, "fetch_in_turn", counted_in_turn)
