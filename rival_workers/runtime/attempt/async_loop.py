"""The event loop of a process's async steps. Whatever a step does to the loop (sys.exit() in a task, loop.stop(), a
call that blocks it), other steps go on: a stopped loop is started again, and while one is blocked a spare one is used.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import FrameType
from typing import Any

log = logging.getLogger("rival.async_loop")

#: Seconds without an answer after which a loop counts as blocked.
BLOCKED_AFTER = 10.0
#: Loops of one process at the most: each step that blocks one for good takes a thread with it.
MOST_LOOPS = 16

Outcome = tuple[Any, BaseException | None]


class LoopClosed(RuntimeError):
    """Code on the event loop of async steps has closed it."""


class AsyncLoop:
    """One event loop for all async steps, so that they can share clients and pools; spare ones while it is blocked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[LoopThread] = []

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """What the awaitable gives or raises. Other threads may call this at the same time."""
        return self._usable().run(awaitable)

    def check(self) -> str | None:
        """What is wrong with a loop, in words, or None. To be called from time to time, from another thread."""
        with self._lock:
            loops = list(self._loops)
        problems = [problem for problem in (loop.check() for loop in loops) if problem]
        return "; ".join(problems) or None

    def _usable(self) -> LoopThread:
        """The first loop that answers, so that steps come back to the one that their clients were made on."""
        with self._lock:
            self._loops = [loop for loop in self._loops if loop.is_open]
            for loop in self._loops:
                if not loop.is_blocked:
                    return loop
            if len(self._loops) < MOST_LOOPS:
                self._loops.append(LoopThread())
            return self._loops[-1]


class LoopThread:
    """An event loop and the thread that runs it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._waiting: set[Future[Outcome]] = set()
        self._asked_at: float | None = None
        self.is_blocked = False
        self._thread = threading.Thread(target=self._serve, name="rival-async-steps", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive() and not self._loop.is_closed()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        ended: Future[Outcome] = Future()
        self._waiting.add(ended)
        try:
            self._loop.call_soon_threadsafe(self._start, awaitable, ended)
            value, error = ended.result()
        except BaseException:
            # A signal in this thread, or a closed loop: nothing waits for the awaitable any more.
            ended.cancel()
            raise
        finally:
            self._waiting.discard(ended)
        if error is not None:
            raise error
        return value

    def _start(self, awaitable: Awaitable[Any], ended: Future[Outcome]) -> None:
        task = self._loop.create_task(_outcome(awaitable))
        task.add_done_callback(lambda done: _settle(ended, done))
        ended.add_done_callback(lambda its: self._cancel(task) if its.cancelled() else None)

    def _cancel(self, task: asyncio.Task[Outcome]) -> None:
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(task.cancel)

    # -- the thread ---------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Until the loop is closed. A task that raises SystemExit, and loop.stop(), only interrupt it."""
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
                why = "was stopped"
            except BaseException as error:
                why = f"was stopped by {type(error).__name__}"
            log.warning("the event loop of async steps %s by code that runs on it; it goes on", why)
        for ended in list(self._waiting):
            with suppress(InvalidStateError):
                ended.set_result((None, LoopClosed("code on the event loop of async steps has closed it")))

    # -- from the heartbeat -------------------------------------------------------------------------------

    def check(self) -> str | None:
        asked = self._asked_at
        if asked is None:
            self._ask()
            return None
        waited = time.monotonic() - asked
        if waited < BLOCKED_AFTER:
            return None
        problem = f"the event loop of async steps has been blocked for {waited:.0f} s{self._where()}"
        if not self.is_blocked:
            log.error("%s: async steps on it wait, others use a spare loop. Await, or use a sync step", problem)
        self.is_blocked = True
        return problem

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # closed
            self._asked_at = None

    def _answer(self) -> None:
        if self.is_blocked:
            log.warning("the event loop of async steps answers again")
        self._asked_at, self.is_blocked = None, False

    def _where(self) -> str:
        """The line of a step's code at which the loop's thread is."""
        frame: FrameType | None = sys._current_frames().get(self._thread.ident or 0)
        found: FrameType | None = None
        while frame is not None:
            if not _is_machinery(frame.f_code.co_filename):
                found = frame if found is None or found.f_code.co_filename != frame.f_code.co_filename else found
            frame = frame.f_back
        return "" if found is None else f" at {found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"


async def _outcome(awaitable: Awaitable[Any]) -> Outcome:
    """SystemExit and KeyboardInterrupt would stop the loop if they left a task."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def _settle(ended: Future[Outcome], task: asyncio.Task[Outcome]) -> None:
    with suppress(InvalidStateError):
        ended.set_result((None, asyncio.CancelledError()) if task.cancelled() else task.result())


def _is_machinery(filename: str) -> bool:
    return filename.endswith("threading.py") or "/asyncio/" in filename or "/rival_workers/runtime/" in filename
