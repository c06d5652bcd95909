"""The shortest way to Postgres: a prepared statement per call, a connection of its own while it lasts, one round trip
per commit.

In autocommit a statement is a transaction. Below psycopg's cursors, on its libpq layer: adaptation and bookkeeping
cost a cursor several times what the call itself does, and the few statements used here need neither.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import generators, pq, waiting

from rival_client.db.conflict_retries import repeat_conflicts
from rival_client.db.database_errors import translated
from rival_client.db.database_urls import LIBPQ_OPTIONS, libpq_url
from rival_client.db.prepared_statement import GroupValue, Row, Statement, Value
from rival_client.forks import call_after_fork, leave_open

#: A thread that waits for an answer checks for a stop of the process at this interval, in seconds.
WAIT_INTERVAL = 0.1


#: A plan is kept: one that was made while a table was empty must not read it from end to end later. It is the same for
#: all values, and made once: Postgres would make the first five, and those of long statements always, for each call.
_BY_INDEX = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan"


class PreparedPool:
    def __init__(self, url: str, settings: str = _BY_INDEX) -> None:
        """`settings`: executed first on each connection."""
        self._url, self._settings = url, settings
        #: Idle connections, the one used last at the end.
        self._idle: deque[_Line] = deque()
        self._all: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()
        call_after_fork(self._drop_connections)

    def _drop_connections(self) -> None:
        leave_open(self._idle)
        self._idle.clear()
        self._all.clear()

    def fetch(self, statement: Statement, values: Mapping[str, Value]) -> Row | None:
        """The first row as text, or None. A DatabaseError leaves open whether it was committed."""
        return repeat_conflicts(lambda: self._fetch(statement, values))

    def _fetch(self, statement: Statement, values: Mapping[str, Value]) -> Row | None:
        with self._lent() as line:
            line.prepare(statement)
            result = line.pgconn.exec_prepared(statement.name, statement.values(values))
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                raise _error(result)
        return _first_row(result)

    def fetch_in_turn(self, first: Statement, second: Statement, values: Mapping[str, Value]) -> Row | None:
        """Two statements in one transaction and one round trip: the second sees what was committed while the first
        waited for a lock. Its first row; both are committed, whatever they find.
        """
        return repeat_conflicts(lambda: self._fetch_in_turn(first, second, values))

    def _fetch_in_turn(self, first: Statement, second: Statement, values: Mapping[str, Value]) -> Row | None:
        with self._lent() as line:
            results = line.in_turn((first, second), values)
            for result in results:
                # The one after an error is not carried out, and says only that.
                if result.status != pq.ExecStatus.TUPLES_OK:
                    raise _error(result)
        return _first_row(results[-1])

    def fetch_groups(self, calls: Sequence[tuple[Statement, Mapping[str, GroupValue]]]) -> list[list[Row]]:
        """All rows of each statement, in one transaction and one round trip. A DatabaseError leaves open whether it was
        committed, unless the database itself has rejected it."""
        with self._lent() as line:
            results = line.together([(statement, *statement.columns(values)) for statement, values in calls])
            for result in results:
                if result.status != pq.ExecStatus.TUPLES_OK:
                    raise _error(result)
        return [[_row(result, number) for number in range(result.ntuples)] for result in results]

    @contextmanager
    def _lent(self) -> Iterator[_Line]:
        """A connection for one call. After an error its state is unknown: it is not used again."""
        line: _Line | None = None
        try:
            line = self._take()
            yield line
        except BaseException as error:
            if line is not None:
                line.connection.close()
            if isinstance(error, psycopg.Error):
                raise translated(self._url, error) from error
            raise
        self._idle.append(line)

    def _take(self) -> _Line:
        with suppress(IndexError):
            while True:
                line = self._idle.pop()
                if not line.connection.closed:
                    return line
        connection = psycopg.connect(
            libpq_url(self._url), autocommit=True, application_name="rival-hot", **LIBPQ_OPTIONS
        )
        connection.execute(self._settings)
        self._all.add(connection)
        return _Line(connection, connection.pgconn, set())

    def close(self) -> None:
        for connection in list(self._all):
            connection.close()


#: A statement, its values and their formats; None: all are text.
Call = tuple[Statement, Sequence[bytes | None], Sequence[int] | None]


@dataclass
class _Line:
    connection: psycopg.Connection[Any]
    pgconn: Any
    prepared: set[bytes]

    def prepare(self, statement: Statement) -> None:
        if statement.name not in self.prepared:
            done = self.pgconn.prepare(statement.name, statement.sql.encode())
            if done.status != pq.ExecStatus.COMMAND_OK:
                raise _error(done)
            self.prepared.add(statement.name)

    def in_turn(self, statements: Sequence[Statement], values: Mapping[str, Value]) -> list[Any]:
        return self.together([(statement, statement.values(values), None) for statement in statements])

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """What is sent before a sync is one transaction, in which each statement has a snapshot of its own."""
        for statement, _, _ in calls:
            self.prepare(statement)
        pgconn = self.pgconn
        if len(calls) == 1:
            [(statement, values, formats)] = calls
            return [pgconn.exec_prepared(statement.name, values, formats)]
        pgconn.enter_pipeline_mode()
        for statement, values, formats in calls:
            pgconn.send_query_prepared(statement.name, values, formats)
        pgconn.pipeline_sync()
        _wait(generators.send(pgconn), pgconn)
        results = [_wait(generators.fetch_many(pgconn), pgconn)[-1] for _ in calls]
        _wait(generators.fetch_many(pgconn), pgconn)  # the sync's own
        pgconn.exit_pipeline_mode()
        return results


def _wait(communication: Any, pgconn: Any) -> Any:
    """Without an interval psycopg would not sleep, but ask again and again."""
    return waiting.wait(communication, pgconn.socket, interval=WAIT_INTERVAL)


def _first_row(result: Any) -> Row | None:
    return None if result.ntuples == 0 else _row(result, 0)


def _row(result: Any, number: int) -> Row:
    return tuple([_text(result.get_value(number, column)) for column in range(result.nfields)])


def _error(result: Any) -> psycopg.Error:
    error = psycopg.errors.error_from_result(result)
    # Only the server gives codes; without one it is libpq that speaks, of a connection that is gone.
    return error if error.sqlstate else psycopg.OperationalError(str(error))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
