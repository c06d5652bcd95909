"""Executes prepared statements on Postgres with one round trip per commit. Each call has a connection of its own while
it lasts.

Connections are in autocommit mode, so a statement is a transaction. The module uses psycopg's libpq layer instead of
its cursors: a cursor's adaptation and bookkeeping cost several times what the call itself does, and these few
statements need neither.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
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
#: A bitmap scan reads the index entries of deleted rows each time, until a vacuum: those of a flow that continues very
#: often are ever more. An index scan marks them when it finds that their rows are gone.
BY_INDEX = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan"


class PreparedPool:
    def __init__(self, url: str, settings: str = BY_INDEX) -> None:
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
        return repeat_conflicts(lambda: self._fetch_each([(first, values), (second, values)]))[-1]

    def fetch_each(self, calls: Sequence[tuple[Statement, Mapping[str, Value]]]) -> list[Row | None]:
        """The first row of each statement, in one transaction and one round trip. All are committed, whatever they
        find."""
        return repeat_conflicts(lambda: self._fetch_each(calls))

    def _fetch_each(self, calls: Sequence[tuple[Statement, Mapping[str, Value]]]) -> list[Row | None]:
        with self._lent() as line:
            results = line.together([(statement, statement.values(values), None) for statement, values in calls])
            _check(results)
        return [_first_row(result) for result in results]

    def fetch_groups(self, calls: Sequence[tuple[Statement, Mapping[str, GroupValue]]]) -> list[list[Row]]:
        """All rows of each statement, in one transaction and one round trip. A DatabaseError leaves open whether it was
        committed, unless the database itself has rejected it."""
        with self._lent() as line:
            results = line.together([(statement, *statement.columns(values)) for statement, values in calls])
            _check(results)
        return [[_row(result, number) for number in range(result.ntuples)] for result in results]

    def _lent(self) -> _Lent:
        """A connection for one call. After an error its state is unknown: it is not used again."""
        return _Lent(self)

    def take(self) -> _Line:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:
                break  # another thread was faster
            if not line.connection.closed:
                return line
        try:
            return self._connect()
        except psycopg.Error as error:
            raise self.translated(error) from error

    def _connect(self) -> _Line:
        connection = psycopg.connect(
            libpq_url(self._url), autocommit=True, application_name="rival-hot", **LIBPQ_OPTIONS
        )
        connection.execute(self._settings)
        self._all.add(connection)
        return _Line(connection, connection.pgconn, set())

    def give_back(self, line: _Line) -> None:
        self._idle.append(line)

    def translated(self, error: psycopg.Error) -> Exception:
        return translated(self._url, error)

    def close(self) -> None:
        for connection in list(self._all):
            connection.close()


class _Lent:
    """Lends a connection for one call. A class, since a generator costs more and each commit needs one."""

    __slots__ = ("_line", "_pool")

    def __init__(self, pool: PreparedPool) -> None:
        self._pool = pool

    def __enter__(self) -> _Line:
        self._line = self._pool.take()
        return self._line

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self._pool.give_back(self._line)
            return
        self._line.connection.close()
        if isinstance(error, psycopg.Error):
            raise self._pool.translated(error) from error


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

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """Execute all in one transaction (one Sync message). Each statement has its own snapshot."""
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


def _check(results: Sequence[Any]) -> None:
    for result in results:
        # A statement after an error is not executed, and its result says only that: raise the first error.
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise _error(result)


def _first_row(result: Any) -> Row | None:
    return None if result.ntuples == 0 else _row(result, 0)


def _row(result: Any, number: int) -> Row:
    values = [result.get_value(number, column) for column in range(result.nfields)]
    return tuple([None if value is None else value.decode() for value in values])


def _error(result: Any) -> psycopg.Error:
    error = psycopg.errors.error_from_result(result)
    # Only the server sends codes. An error without one comes from libpq: the connection is gone.
    return error if error.sqlstate else psycopg.OperationalError(str(error))
