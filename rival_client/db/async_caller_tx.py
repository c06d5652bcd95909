"""Joins a producer's own transaction on an event loop. `caller_tx` does the same without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from rival_client.db.caller_connections import as_query, callers_errors, is_async_sqlalchemy, unfit
from rival_client.db.caller_tx import Publisher, T, insert_in, run_in, send_in
from rival_client.db.statement_runs import run_statements_async
from rival_client.model.starts.starts import Start
from rival_client.sql import run_inserts
from rival_client.sql.event_inserts import INSERT_PSYCOPG as INSERT_EVENT_PSYCOPG
from rival_client.sql.event_inserts import sent_unless_full
from rival_client.sql.events import Event
from rival_client.sql.shared_starts import Statements
from rival_client.sql.start_conflicts import refuse_conflicts


async def run_in_async(connection: Any, statements: Callable[[bool], Statements[T]], after: Callable[[T], None]) -> T:
    with callers_errors():
        if is_async_sqlalchemy(connection):
            value: T = await connection.run_sync(run_in, statements, after)
            return value
        if isinstance(connection, psycopg.AsyncConnection):
            return await run_statements_async(statements(True), connection)
        raise unfit(connection)


async def send_in_async(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    with callers_errors():
        return await _send_in_async(connection, event, grace, publish)


async def _send_in_async(connection: Any, event: Event, grace: float, publish: Callable[[], None]) -> bool:
    if is_async_sqlalchemy(connection):
        sent: bool = await connection.run_sync(send_in, event, grace, publish)
        return sent
    if isinstance(connection, psycopg.AsyncConnection):
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(as_query(INSERT_EVENT_PSYCOPG), event.parameters(0))
            rows = await cursor.fetchall()
        return sent_unless_full(event, rows[0][0])
    raise unfit(connection)


async def insert_in_async(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    with callers_errors():
        return await _insert_in_async(connection, start, grace, publish)


async def _insert_in_async(connection: Any, start: Start, grace: float, publish: Publisher) -> set[str]:
    if is_async_sqlalchemy(connection):
        created: set[str] = await connection.run_sync(insert_in, start, grace, publish)
        return created
    if isinstance(connection, psycopg.AsyncConnection):
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(as_query(run_inserts.INSERT_RUNS_PSYCOPG), start.all(0))
            created = {row[0] for row in await cursor.fetchall()}
        await run_statements_async(refuse_conflicts(start, created), connection)
        return created
    raise unfit(connection)
