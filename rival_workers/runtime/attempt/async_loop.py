"""The event loop of the async steps of this process. A step that stops the loop (loop.stop(), sys.exit() in a task) or
blocks it does not affect other steps: a stopped loop is started again, and a spare loop replaces a blocked one. The
coroutine of an attempt that is over is cancelled.
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
from functools import partial
from types import FrameType
from typing import Any

from rival_workers.runtime.attempt.calls_over import CLEANUP, UserCall, cancelled_when_over

log = logging.getLogger("rival.async_loop")

#: Seconds without an answer after which a loop counts as blocked.
BLOCKED_AFTER = 10.0
#: The largest number of loops in one process. A step that blocks its loop permanently also blocks a thread.
MAX_LOOPS = 16

Outcome = tuple[Any, BaseException | None]


class LoopClosed(RuntimeError):
    """Code on the event loop of async steps has closed it."""


class AsyncLoop:
    """One event loop for all async steps, so that they can share clients and pools; spare loops while it is blocked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[LoopThread] = []

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Returns or raises the result of the awaitable. Thread-safe."""
        return self._usable().run(awaitable)

    def check(self) -> str | None:
        """Returns a description of blocked loops, or None. Call it periodically from another thread."""
        with self._lock:
            loops = list(self._loops)
        problems = [problem for problem in (loop.check() for loop in loops) if problem]
        return "; ".join(problems) or None

    @property
    def left_behind(self) -> list[UserCall]:
        """The calls whose coroutines have ignored that they were cancelled, and still run."""
        with self._lock:
            return [call for loop in self._loops for call in list(loop.left_behind.values())]

    def _usable(self) -> LoopThread:
        """The first loop that is not blocked, so that steps return to the loop on which their clients were created."""
        with self._lock:
            self._loops = [loop for loop in self._loops if loop.is_open]
            for loop in self._loops:
                if not loop.is_blocked:
                    return loop
            if len(self._loops) < MAX_LOOPS:
                self._loops.append(LoopThread())
            return self._loops[-1]


class LoopThread:
    """An event loop and its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._waiting: set[Future[Outcome]] = set()
        self._tasks: dict[Future[Outcome], asyncio.Task[Outcome]] = {}
        self._asked_at: float | None = None
        self.is_blocked = False
        #: Coroutines that still run although they were cancelled.
        self.left_behind: dict[asyncio.Task[Outcome], UserCall] = {}
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
            with cancelled_when_over(partial(self._over, ended)):
                value, error = ended.result()
        except BaseException:
            # A signal in this thread, or a closed loop: the result is not needed any more.
            ended.cancel()
            raise
        finally:
            self._waiting.discard(ended)
        if error is not None:
            raise error
        return value

    def _start(self, awaitable: Awaitable[Any], ended: Future[Outcome]) -> None:
        task = self._tasks[ended] = self._loop.create_task(_outcome(awaitable))
        task.add_done_callback(lambda done: self._pass_on(ended, done))
        ended.add_done_callback(lambda its: self._cancel(task) if its.cancelled() else None)

    def _pass_on(self, ended: Future[Outcome], task: asyncio.Task[Outcome]) -> None:
        self._tasks.pop(ended, None)
        with suppress(InvalidStateError):
            ended.set_result((None, asyncio.CancelledError()) if task.cancelled() else task.result())

    def _cancel(self, task: asyncio.Task[Outcome]) -> None:
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(task.cancel)

    def _over(self, ended: Future[Outcome], call: UserCall) -> None:
        """The result does not count any more. The thread that waits for it is free when the cleanup has ended."""
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(self._cancel_over, ended, call)

    def _cancel_over(self, ended: Future[Outcome], call: UserCall) -> None:
        task = self._tasks.get(ended)
        if task is not None:
            task.cancel()
            self._loop.call_later(CLEANUP, self._leave_behind, ended, task, call)

    def _leave_behind(self, ended: Future[Outcome], task: asyncio.Task[Outcome], call: UserCall) -> None:
        if task.done():
            return
        self.left_behind[task] = call
        log.warning("the coroutine of %s was cancelled, and still runs", call)
        task.add_done_callback(lambda done: self.left_behind.pop(done, None))
        ended.cancel()

    # -- the thread ---------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Runs until the loop is closed. loop.stop(), and a task that raises SystemExit, only interrupt it."""
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
                why = "was stopped"
            except BaseException as error:
                why = f"was stopped by {type(error).__name__}"
            log.warning("the event loop of async steps %s by code that runs on it; it is started again", why)
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
            log.error(
                "%s: steps on it wait, others use a spare loop. Await blocking calls, or use a sync step", problem
            )
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
        """The line of user code that the loop's thread executes now."""
        frame: FrameType | None = sys._current_frames().get(self._thread.ident or 0)
        found: FrameType | None = None
        while frame is not None:
            if not _is_machinery(frame.f_code.co_filename):
                found = frame if found is None or found.f_code.co_filename != frame.f_code.co_filename else found
            frame = frame.f_back
        return "" if found is None else f" at {found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"


async def _outcome(awaitable: Awaitable[Any]) -> Outcome:
    """Catches all exceptions: SystemExit and KeyboardInterrupt would stop the loop if they left a task."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def _is_machinery(filename: str) -> bool:
    return filename.endswith("threading.py") or "/asyncio/" in filename or "/rival_workers/runtime/" in filename


#: The loop of this process.
async_steps = AsyncLoop()
