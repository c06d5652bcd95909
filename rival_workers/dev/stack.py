"""The embedded stack: `open_stack` returns the URLs of servers that run as long as a process uses them. It never reads
the environment; a caller that has URLs passes them. Also creates and drops databases."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, urlsplit, urlunsplit

from rival_workers.dev.errors import StackError
from rival_workers.dev.file_lock import FileLock, is_locked
from rival_workers.dev.stack_files import BROKER, DATABASE, Request, StackState, read_state, write_request
from rival_workers.dev.stack_paths import StackPaths

__all__ = ["Stack", "StackError", "create_database", "drop_database", "open_stack"]

TIMEOUT = 90.0
SUPERVISOR = "rival_workers.dev.supervisor"


class Stack:
    """A database and a broker; embedded servers run until the last process that opened them closes them or dies."""

    def __init__(self, directory: Path, database_url: str, broker_url: str, hold: FileLock | None) -> None:
        self.directory = directory
        self.database_url = database_url
        self.broker_url = broker_url
        self._hold = hold

    def close(self) -> None:
        if self._hold is not None:
            self._hold.close()

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_stack(
    directory: Path | str = ".rival", *, database_url: str | None = None, broker_url: str | None = None
) -> Stack:
    """The stack of `directory`, started if necessary; a given URL replaces an embedded server."""
    paths = StackPaths(Path(directory).absolute())
    if database_url is not None and broker_url is not None:
        return Stack(paths.directory, database_url, broker_url, None)
    needed = [name for name, url in ((DATABASE, database_url), (BROKER, broker_url)) if url is None]
    paths.prepare()
    hold = FileLock(paths.users_lock)
    try:
        state = _hold_and_start(paths, hold, needed)
    except BaseException:
        hold.close()
        raise
    return Stack(
        paths.directory,
        database_url if database_url is not None else state.servers[DATABASE].url,
        broker_url if broker_url is not None else state.servers[BROKER].url,
        hold,
    )


def _hold_and_start(paths: StackPaths, hold: FileLock, needed: list[str]) -> StackState:
    # Taken before the first check: while it is held, the supervisor does not stop the servers.
    if not hold.lock(TIMEOUT, shared=True):
        raise StackError(f"The embedded stack in {paths.directory} does not finish stopping.")
    return _running(paths, needed) or _start(paths, needed)


def _running(paths: StackPaths, needed: list[str]) -> StackState | None:
    state = read_state(paths)
    if state is not None and state.has(needed) and is_locked(paths.supervisor_lock):
        return state
    return None


def _start(paths: StackPaths, needed: list[str]) -> StackState:
    with FileLock(paths.start_lock) as lock:
        if not lock.lock(TIMEOUT):
            raise StackError(f"Another process has been starting the stack in {paths.directory} for too long.")
        state = _running(paths, needed)  # the previous holder of the lock may have started it
        return state if state is not None else _request(paths, needed)


def _request(paths: StackPaths, needed: list[str]) -> StackState:
    request = Request.new(needed)
    write_request(paths, request)
    if not is_locked(paths.supervisor_lock):
        paths.state.unlink(missing_ok=True)  # left by a supervisor that was killed
        _launch_supervisor(paths)
    return _await_answer(paths, request)


def _launch_supervisor(paths: StackPaths) -> None:
    with paths.supervisor_log.open("wb") as log:
        subprocess.run(
            [sys.executable, "-P", "-m", SUPERVISOR, str(paths.directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            check=False,  # after a failure no process holds the lock
        )


def _await_answer(paths: StackPaths, request: Request) -> StackState:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        alive = is_locked(paths.supervisor_lock)  # checked first: the supervisor may answer and end in between
        state = read_state(paths)
        if state is not None and state.answered == request.id:
            return _accept(state, request)
        if not alive:
            raise StackError(f"The embedded stack did not start:\n{paths.supervisor_log.read_text()}")
        time.sleep(0.01)
    raise StackError(f"The embedded stack did not start within {TIMEOUT:.0f} seconds: see {paths.supervisor_log}")


def _accept(state: StackState, request: Request) -> StackState:
    failures = [state.failures[name] for name in request.names if name in state.failures]
    if failures or not state.has(request.names):
        raise StackError("\n".join(failures) or "A server of the embedded stack died while it was starting.")
    return state


MAINTENANCE = "postgres"


def create_database(database_url: str, name: str, template: str | None = None) -> str:
    """Creates the database `name` on the server of `database_url`, a copy of `template`, and returns its URL."""
    copied = "" if template is None else f" TEMPLATE {_quoted(template)}"
    _execute(database_url, f"CREATE DATABASE {_quoted(name)}{copied}")
    return with_database(database_url, name)


def drop_database(database_url: str, name: str) -> None:
    """Drops the database, even with open connections; it need not exist."""
    _execute(database_url, f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")


def with_database(database_url: str, name: str) -> str:
    return urlunsplit(urlsplit(database_url)._replace(path=f"/{quote(name, safe='')}"))


def _execute(database_url: str, statement: str) -> None:
    # Imported late: it takes longer than opening a running stack, and most callers create no database.
    import psycopg

    # Not through the given database: one with connections can neither be copied nor dropped.
    parts = urlsplit(with_database(database_url, MAINTENANCE))
    plain = urlunsplit(parts._replace(scheme=parts.scheme.partition("+")[0]))
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement.encode())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
