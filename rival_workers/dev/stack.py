"""The embedded stack as everybody uses it: `open_stack` gives the URLs of servers that run for as long as
anybody needs them. It never reads the environment; a caller who has URLs passes them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from rival_workers.dev import supervisor_entry
from rival_workers.dev.board import (
    BROKER,
    DATABASE,
    Board,
    Places,
    Request,
    read_board,
    write_request,
)
from rival_workers.dev.databases import create_database, drop_database
from rival_workers.dev.errors import StackError
from rival_workers.dev.locks import FileLock, is_locked

__all__ = ["Stack", "StackError", "create_database", "drop_database", "open_stack"]

TIMEOUT = 90.0


class Stack:
    """A database and a broker; what is embedded runs until the last process that opened it closes it or dies."""

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
    """The one stack of `directory`, started if need be; a URL that is given takes the place of a server."""
    places = Places(Path(directory).absolute())
    if database_url is not None and broker_url is not None:
        return Stack(places.directory, database_url, broker_url, None)
    needed = [name for name, url in ((DATABASE, database_url), (BROKER, broker_url)) if url is None]
    places.prepare()
    hold = FileLock(places.users_lock)
    try:
        board = _hold_and_ask(places, hold, needed)
    except BaseException:
        hold.close()
        raise
    return Stack(
        places.directory,
        database_url if database_url is not None else board.servers[DATABASE].url,
        broker_url if broker_url is not None else board.servers[BROKER].url,
        hold,
    )


def _hold_and_ask(places: Places, hold: FileLock, needed: list[str]) -> Board:
    # Held before the first look: from here on the servers are not stopped under us.
    if not hold.lock(TIMEOUT, shared=True):
        raise StackError(f"The embedded stack in {places.directory} does not finish stopping.")
    return _running(places, needed) or _start(places, needed)


def _running(places: Places, needed: list[str]) -> Board | None:
    board = read_board(places)
    if board is not None and board.has(needed) and is_locked(places.supervisor_lock):
        return board
    return None


def _start(places: Places, needed: list[str]) -> Board:
    with FileLock(places.start_lock) as turn:
        if not turn.lock(TIMEOUT):
            raise StackError(f"Another process has been starting the stack in {places.directory} for too long.")
        board = _running(places, needed)  # the one before us may have done it
        return board if board is not None else _ask(places, needed)


def _ask(places: Places, needed: list[str]) -> Board:
    request = Request.new(needed)
    write_request(places, request)
    if not is_locked(places.supervisor_lock):
        places.board.unlink(missing_ok=True)  # left by a supervisor that was killed
        _launch_supervisor(places)
    return _await_answer(places, request)


def _launch_supervisor(places: Places) -> None:
    with places.supervisor_log.open("wb") as log:
        subprocess.run(
            [sys.executable, "-P", supervisor_entry.__file__, str(places.directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            check=False,  # a failure shows in that nobody holds the lock
        )


def _await_answer(places: Places, request: Request) -> Board:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        alive = is_locked(places.supervisor_lock)  # looked at first: it may answer and be gone in between
        board = read_board(places)
        if board is not None and board.answered == request.id:
            return _accept(board, request)
        if not alive:
            raise StackError(f"The embedded stack did not start:\n{places.supervisor_log.read_text()}")
        time.sleep(0.01)
    raise StackError(f"The embedded stack did not start within {TIMEOUT:.0f} seconds: see {places.supervisor_log}")


def _accept(board: Board, request: Request) -> Board:
    failures = [board.failures[name] for name in request.names if name in board.failures]
    if failures or not board.has(request.names):
        raise StackError("\n".join(failures) or "A server of the embedded stack died while it was starting.")
    return board
