"""The event loop of one attempt of an async flow. It runs the ready callbacks in order; when none is ready, the
scheduler delivers one more end to the flow, or suspends it.

Timers (`asyncio.sleep`, `timeout`, `wait_for`) are checkpoints. The loop has no I/O: that belongs in steps.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from rival_client.model.kinds import SLEEP
from rival_workers.errors import NotInFlows
from rival_workers.runtime.flow.pending_operations import Operation, SleepOperation, refuse_await
from rival_workers.runtime.flow.scheduler import FlowScheduler
from rival_workers.runtime.flow.tasks import FlowFuture, LaneTask, OperationFuture

#: How often a coroutine that awaits in a `finally` block is closed again.
_CLOSES = 50


class _Timer(asyncio.TimerHandle):
    operation: SleepOperation


#: How often tasks that do not wait are run before the next end is delivered.
BUSY_ROUNDS = 1000


class FlowLoop(asyncio.AbstractEventLoop):
    def __init__(self, scheduler: FlowScheduler) -> None:
        self.scheduler = scheduler
        self.lanes: list[LaneTask] = []
        self._ready: deque[asyncio.Handle] = deque()
        self._futures: dict[Operation, OperationFuture] = {}
        self._made_futures = 0
        self._main: LaneTask | None = None
        self._round_is_last = False
        scheduler.future_of, scheduler.current_lane = self._future_of, self._current_lane
        scheduler.is_async = True

    # -- running ------------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """As `asyncio.run`: when the flow's function has ended, its other tasks are cancelled and awaited."""
        try:
            self._main = LaneTask(coroutine, loop=self, parent=None)
            self._main.add_done_callback(self._end_round)
            self._run_until(self._main.done)
            left = [lane for lane in self.lanes if not lane.done()]
            for lane in left:
                lane.cancel()
            self._run_until(lambda: all(lane.done() for lane in left))
            value = self._main.result()
            self.scheduler.finish()
            return value
        finally:
            self._abandon()

    def _run_until(self, done: Callable[[], bool]) -> None:
        while True:
            self._round_is_last = False
            self._run_ready()
            if done():
                return
            self.scheduler.advance()

    def _end_round(self, _: Any) -> None:
        """Any loop stops after the round in which the main task ends: other tasks run no further."""
        self._round_is_last = True

    def _run_ready(self) -> None:
        """Run until all tasks wait. Tasks in a busy wait never do: they receive the next end after a number of rounds,
        which is the same in every replay."""
        rounds = 0
        with self._is_running():
            while self._ready and not self._round_is_last and (rounds < BUSY_ROUNDS or not self.scheduler.open):
                rounds += 1
                for _ in range(len(self._ready)):
                    handle = self._ready.popleft()
                    if not handle._cancelled:
                        handle._run()
                    self.scheduler.check_not_stopped()

    @contextmanager
    def _is_running(self) -> Iterator[None]:
        """Only while handles run: a step that is called in this thread may use asyncio itself."""
        before, hooks = events._get_running_loop(), sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(before)

    def _close_generator(self, generator: Any) -> None:
        """An async generator was dropped: its `finally` runs in a lane of its own."""
        if self.scheduler.stopped is None:
            self.create_task(generator.aclose(), name="generator")

    def _abandon(self) -> None:
        """Close all coroutines of the flow. Calls on ctx in their `finally` blocks are refused."""
        self.scheduler.end()
        with self._is_running():
            for lane in self.lanes:
                lane._log_destroy_pending = False  # type: ignore[attr-defined]
                if not lane.done():
                    _close(lane.get_coro())
        self._ready.clear()
        self.lanes.clear()
        # What holds each other would be freed by a garbage collection only.
        for operation in self._futures:
            operation.when_over.clear()
        self._futures.clear()
        self._main = None
        self.scheduler.current_lane, self.scheduler.future_of = str, refuse_await

    def _future_of(self, operation: Operation) -> OperationFuture:
        self.scheduler.check()
        if operation not in self._futures:
            future = self._futures[operation] = OperationFuture(operation, self)
            self.scheduler.start(operation)
            if not operation.is_open:
                future.settle()
        return self._futures[operation]

    def _current_lane(self) -> str:
        task = asyncio.current_task(self)
        # A callback of `loop.call_soon` runs outside of any task.
        return task.lane if isinstance(task, LaneTask) else "callback"

    # -- methods of an event loop -------------------------------------------------------------------------

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **options: Any) -> LaneTask:
        if any(options.values()):
            _dispose(coro)
            raise NotInFlows(f"asyncio.create_task({', '.join(options)}=…) is not possible in a flow: leave it out")
        if isinstance(coro, Operation):
            coro = _awaiting(coro)
        elif _called_by_as_completed() and getattr(coro, "__name__", "") != "_wrap_awaitable":
            _dispose(coro)
            raise NotInFlows(
                "asyncio.as_completed starts coroutines in an order that differs between processes: give it tasks, "
                "[asyncio.create_task(one) for one in …], or calls on ctx"
            )
        parent = asyncio.current_task(self)
        above = parent if isinstance(parent, LaneTask) else self._main
        task = LaneTask(coro, loop=self, parent=above, context=context)
        if name is not None:
            task.set_name(name)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        self._made_futures += 1
        return FlowFuture(self, self._made_futures)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        ref = self.scheduler.come_to("timer", SLEEP)
        timer = _Timer(self.time() + delay, callback, args, self, context)
        timer.operation = SleepOperation(self.scheduler, ref, max(0.0, round(delay, 6)))
        timer.operation.when_over.append(lambda: None if timer._cancelled else self._ready.append(timer))
        self.scheduler.start(timer.operation)
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        if handle.operation.is_open:
            handle.operation.when_over.clear()
            handle.operation.cancel()

    def time(self) -> float:
        return self.scheduler.time()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error of a task that is never awaited: as in any loop, it does not end the flow."""

    default_exception_handler = call_exception_handler


async def _awaiting(operation: Operation) -> Any:
    return await operation


def _called_by_as_completed() -> bool:
    frame: Any = sys._getframe(2)
    for _ in range(6):
        if frame is None:
            return False
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        if frame.f_globals.get("__name__") == "asyncio.tasks" and (name == "as_completed" or "_AsCompleted" in name):
            return True
        frame = frame.f_back
    return False


def _dispose(coroutine: Any) -> None:
    if inspect.iscoroutine(coroutine):
        coroutine.close()


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSES):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # it awaits something in a `finally`
        except BaseException:  # its call on ctx was refused
            pass
        return


def _refusal(name: str) -> Any:
    def refuse(self: FlowLoop, *args: Any, **kwargs: Any) -> Any:
        for one in args:
            _dispose(one)
        raise NotInFlows(
            f"an async flow's own code does no I/O and uses no threads (loop.{name}): put that into a function, and "
            "await ctx.step(function, …)"
        )

    return refuse


for _name in vars(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in vars(FlowLoop):
        setattr(FlowLoop, _name, _refusal(_name))
