"""Executes generated statements on any kind of connection: SQLAlchemy's and psycopg's, sync and async."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Connection, Executable
from sqlalchemy.dialects.postgresql import psycopg as psycopg_dialect

from rival_client.sql.shared_starts import Statements

T = TypeVar("T")
_DIALECT: Any = psycopg_dialect.dialect()  # type: ignore[no-untyped-call]


def run_statements(statements: Statements[T], execute: Callable[[Executable], Sequence[Any]]) -> T:
    try:
        statement = next(statements)
        while True:
            statement = statements.send(execute(statement))
    except StopIteration as done:
        value: T = done.value
        return value


def on_sqlalchemy(connection: Connection) -> Callable[[Executable], Sequence[Any]]:
    def execute(statement: Executable) -> Sequence[Any]:
        result = connection.execute(statement)
        return result.all() if result.returns_rows else ()

    return execute


def on_psycopg(connection: psycopg.Connection[Any]) -> Callable[[Executable], Sequence[Any]]:
    def execute(statement: Executable) -> Sequence[Any]:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(*_compiled(statement))
            return cursor.fetchall() if cursor.description else ()

    return execute


async def run_statements_async(statements: Statements[T], connection: psycopg.AsyncConnection[Any]) -> T:
    try:
        statement = next(statements)
        while True:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(*_compiled(statement))
                rows = await cursor.fetchall() if cursor.description else ()
            statement = statements.send(rows)
    except StopIteration as done:
        value: T = done.value
        return value


def _compiled(statement: Any) -> tuple[Any, Any]:
    """Only plain values are parameters, so psycopg adapts them."""
    compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    return str(compiled), compiled.params
