"""Translates errors of the database drivers into Rival's own: outages that may end by themselves, transactions that
lost against another one, and rejected statements. Messages never contain SQL or values.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, PendingRollbackError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseRefused, DatabaseUnavailable, MissingTables
from rival_client.model.masking import masked, without_secrets

#: serialization_failure, deadlock_detected, lock_not_available: the whole transaction may simply be repeated.
_CONFLICTS = frozenset({"40001", "40P01", "55P03"})
#: Classes of codes that pass without a change to Rival's roles, tables or statements: connection, resources (disk,
#: memory, connections), operator intervention (shutdown, cancelled statement), system errors, internal errors.
_PASSING_CLASSES = ("08", "53", "57", "58", "XX")
#: read_only_sql_transaction; idle_in_transaction and transaction timeouts; statement_completion_unknown.
_PASSING = frozenset({"25006", "25P03", "25P04", "40003"})
_FAILED_TRANSACTION = "25P02"
#: data_exception
_DATA = "22000"
#: SQLite's primary codes with the same meaning: busy, locked, out of memory, interrupted, read-only, I/O error,
#: corrupt, full, cannot open, locking protocol, not a database.
_SQLITE_PASSING = frozenset({5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 26})


#: SQLite's codes of a path that is not that of a database: cannot open, not a database.
_SQLITE_PATH = frozenset({14, 26})


def translated(url: str | None, error: Exception) -> DatabaseError:
    """Rival's error for one of SQLAlchemy's or a driver's."""
    _drop_statement(error)
    cause = _of_driver(error)
    if isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return _unavailable(url, cause)
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(url, cause)
    return _of_postgres(url, error, cause)


def _of_postgres(url: str | None, error: Exception, cause: BaseException) -> DatabaseError:
    code = _sqlstate(cause) or ""
    if code in _CONFLICTS:
        return DatabaseBusy(
            f"{_named(url)} rolled the transaction back again and again because of others ({_first_line(cause, url)}). "
            "Nothing was changed: try again.",
            code,
        )
    if code.startswith(_PASSING_CLASSES) or code in _PASSING or (not code and _is_about_connection(error, cause)):
        return _unavailable(url, cause)
    if code == _FAILED_TRANSACTION or isinstance(error, PendingRollbackError):
        return _in_failed_transaction(url, cause)
    return MissingTables(_without_tables(url), code) if code == "42P01" else _rejected(url, cause)


def _is_about_connection(error: Exception, cause: BaseException) -> bool:
    """An error without a code comes from libpq: the connection could not be opened, or was lost."""
    return any(type(one).__name__ in ("OperationalError", "InterfaceError") for one in (error, cause))


def _of_sqlite(url: str | None, cause: sqlite3.Error) -> DatabaseError:
    code = int(getattr(cause, "sqlite_errorcode", 0) or 0) & 0xFF
    if code in _SQLITE_PATH:
        return DatabaseUnavailable(
            f"{_named(url)} cannot be opened ({_first_line(cause, url)}). Give the path of a SQLite file that Rival "
            "has made, or of a new one in a folder that exists and that this process may write to."
        )
    if code in _SQLITE_PASSING:
        return _unavailable(url, cause)
    return MissingTables(_without_tables(url)) if "no such table: rival_" in str(cause) else _rejected(url, cause)


def _unavailable(url: str | None, cause: BaseException) -> DatabaseUnavailable:
    answers = _sqlstate(cause) is not None or isinstance(cause, sqlite3.Error)
    what = "takes no work now" if answers else "does not answer"
    check = "it is not read-only, full or overloaded" if answers else "it runs and that RIVAL_DATABASE_URL is right"
    problem = f"{_named(url)} {what} ({_first_line(cause, url)})"
    message = f"{problem}. Check that {check}; `rival doctor` checks the rest."
    return DatabaseUnavailable(message, _sqlstate(cause), problem=problem)


def _rejected(url: str | None, cause: BaseException) -> DatabaseRefused:
    problem = f"{_named(url)} has rejected a statement ({type(cause).__name__}: {_first_line(cause, url)})"
    check = "`rival doctor` checks the database, its schema and the privileges of its role"
    return DatabaseRefused(f"{problem}. Nothing was changed by it. {check}.", _sqlstate(cause), problem=problem)


def _in_failed_transaction(url: str | None, cause: BaseException) -> DatabaseRefused:
    return DatabaseRefused(
        f"{_named(url)} has rejected a statement ({type(cause).__name__}: {_first_line(cause, url)}). An earlier "
        "statement of this transaction has failed: roll it back, all of it or to a savepoint, and begin again.",
        _sqlstate(cause),
    )


def _without_tables(url: str | None) -> str:
    return f"{_named(url)} has no Rival tables yet. Run `rival db upgrade`."


def _named(url: str | None) -> str:
    """Without a URL it is the database of a connection that a caller has given."""
    return f"The database at {masked(url)}" if url else "The database of the given connection"


def _of_driver(error: Exception) -> BaseException:
    """SQLAlchemy wraps the driver's errors."""
    return getattr(error, "orig", None) or error


def _sqlstate(cause: BaseException) -> str | None:
    code: str | None = getattr(cause, "sqlstate", None)
    # The driver itself refuses values that Postgres cannot store, such as a text with NUL.
    return _DATA if code is None and type(cause).__name__ == "DataError" else code


def _first_line(cause: BaseException, url: str | None) -> str:
    """The lines after the first may quote the statement."""
    lines = str(cause).strip().splitlines()
    return without_secrets(lines[0], url) if lines else type(cause).__name__


def _drop_statement(error: Exception) -> None:
    """SQLAlchemy adds the SQL to the text of its errors, and Postgres quotes it and the values after the first line;
    tracebacks and logs would show it."""
    if isinstance(error, StatementError):
        error.statement = error.params = None
    for one in (error, _of_driver(error)):
        one.args = tuple(arg.strip().partition("\n")[0] if isinstance(arg, str) else arg for arg in one.args)
