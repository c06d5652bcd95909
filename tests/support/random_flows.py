"""Random async programs, which run both as flows and as plain asyncio.

A program is a tree of nodes (JSON). `interpret` runs it with an environment, which knows what a step, a sleep or an
event is: a flow's, or one of the two references on standard loops. The trace has what all lanes saw, in order.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Program = dict[str, Any]

LEAVES = ["step"] * 4 + ["async_step"] * 2 + ["sleep"] * 3 + ["asyncio_sleep", "event", "sent", "fail", "now", "call"]
#: Their results follow from the structure alone, whatever takes how long.
PLAIN = ["seq"] * 3 + ["gather"] * 3 + ["group", "finally", "generator", "lock"]
#: Theirs depend on what ends first.
RACES = ["wait_for", "timeout", "first", "wait", "as_completed", "queue", "shield"]
_MANY = ("seq", "gather", "group", "wait", "as_completed", "queue", "lock")

#: The node whose timer asyncio is about to set.
node_of_timer: contextvars.ContextVar[Any] = contextvars.ContextVar("node", default=None)


def make_program(seed: str, *, races: bool) -> Program:
    dice, numbers = random.Random(seed), itertools.count(1)

    def seconds() -> float:
        return round(dice.choice([0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05]) + dice.random() * 0.01, 4)

    def leaf() -> Program:
        return {"kind": dice.choice(LEAVES), "id": next(numbers), "seconds": seconds()}

    def node(depth: int) -> Program:
        if depth == 0 or dice.random() < 0.25:
            return leaf()
        kind = dice.choice(PLAIN + (RACES * 2 if races else []))
        parts = [node(depth - 1) for _ in range(dice.randint(2, 4) if kind in _MANY else 1)]
        if kind == "first":
            parts = [leaf() | {"kind": dice.choice(("step", "sleep", "event", "call"))} for _ in range(3)]
        return {"kind": kind, "id": next(numbers), "seconds": seconds() + 0.005, "parts": parts}

    parts = [node(3) for _ in range(dice.randint(2, 3))]
    return {"kind": dice.choice(["gather", "group", "seq"]), "id": 0, "seconds": 0, "parts": parts}


class Environment(Protocol):
    def log(self, *what: Any) -> None: ...
    async def leaf(self, kind: str, node: Any, seconds: float) -> Any: ...
    async def first(self, leaves: Sequence[Program]) -> int: ...


async def interpret(program: Program, env: Environment) -> Any:
    kind, node = program["kind"], program["id"]
    env.log("in", node)
    try:
        found = await _NODES.get(kind, _leaf)(program, env)
    except asyncio.CancelledError:
        env.log("cancelled", node)
        raise
    env.log("out", node)
    return found


async def _leaf(program: Program, env: Environment) -> Any:
    try:
        return await env.leaf(program["kind"], program["id"], program["seconds"])
    except asyncio.CancelledError:
        raise
    except Exception:
        return "failed"


async def _asyncio_sleep(program: Program, env: Environment) -> None:
    node_of_timer.set(program["id"])
    await asyncio.sleep(program["seconds"])


async def _seq(program: Program, env: Environment) -> Any:
    return [await interpret(part, env) for part in program["parts"]]


async def _gather(program: Program, env: Environment) -> Any:
    return await asyncio.gather(*[interpret(part, env) for part in program["parts"]])


async def _group(program: Program, env: Environment) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(interpret(part, env)) for part in program["parts"]]
    return [task.result() for task in tasks]


async def _finally(program: Program, env: Environment) -> Any:
    try:
        return await interpret(program["parts"][0], env)
    finally:
        env.log("finally", await env.leaf("step", f"{program['id']}f", 0.001))


async def _generator(program: Program, env: Environment) -> Any:
    async def values() -> Any:
        for number in range(3):
            yield await env.leaf("step", f"{program['id']}g{number}", 0.001)

    found = [value async for value in values()]
    return [*found, await interpret(program["parts"][0], env)]


async def _lock(program: Program, env: Environment) -> Any:
    lock, found = asyncio.Lock(), []

    async def alone(part: Program) -> None:
        async with lock:
            found.append(await interpret(part, env))

    await asyncio.gather(*[alone(part) for part in program["parts"]])
    return found


async def _wait_for(program: Program, env: Environment) -> Any:
    async def without_timer() -> Any:
        node_of_timer.set(None)
        return await interpret(program["parts"][0], env)

    node_of_timer.set(f"{program['id']}t")
    try:
        return await asyncio.wait_for(without_timer(), program["seconds"])
    except TimeoutError:
        return "timeout"


async def _timeout(program: Program, env: Environment) -> Any:
    node_of_timer.set(f"{program['id']}t")
    try:
        async with asyncio.timeout(program["seconds"]):
            return await interpret(program["parts"][0], env)
    except TimeoutError:
        return "timeout"


async def _first(program: Program, env: Environment) -> Any:
    return await env.first(program["parts"])


async def _wait(program: Program, env: Environment) -> Any:
    tasks = [asyncio.create_task(interpret(part, env)) for part in program["parts"]]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [index for index, task in enumerate(tasks) if task in done]


async def _as_completed(program: Program, env: Environment) -> Any:
    async def numbered(index: int, part: Program) -> Any:
        return [index, await interpret(part, env)]

    tasks = [asyncio.create_task(numbered(*each)) for each in enumerate(program["parts"])]
    return [await one for one in asyncio.as_completed(tasks)]


async def _queue(program: Program, env: Environment) -> Any:
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def produce(index: int, part: Program) -> None:
        await queue.put([index, await interpret(part, env)])

    tasks = [asyncio.create_task(produce(*each)) for each in enumerate(program["parts"])]
    try:
        return [
            [await queue.get(), await env.leaf("step", f"{program['id']}q{number}", 0.001)]
            for number in range(len(tasks))
        ]
    finally:
        for task in tasks:
            task.cancel()


async def _shield(program: Program, env: Environment) -> Any:
    task = asyncio.create_task(interpret(program["parts"][0], env))
    node_of_timer.set(f"{program['id']}t")
    try:
        found = await asyncio.wait_for(asyncio.shield(task), program["seconds"])
    except TimeoutError:
        found = "late"
    return [found, await task]


_NODES: dict[str, Callable[[Program, Environment], Any]] = {
    "asyncio_sleep": _asyncio_sleep,
    "seq": _seq,
    "gather": _gather,
    "group": _group,
    "finally": _finally,
    "generator": _generator,
    "lock": _lock,
    "wait_for": _wait_for,
    "timeout": _timeout,
    "first": _first,
    "wait": _wait,
    "as_completed": _as_completed,
    "queue": _queue,
    "shield": _shield,
}


# -- the references -----------------------------------------------------------------------------------------


class _Selector:
    """In place of sockets: called when the loop has nothing to run."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        self._idle = idle

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._idle(timeout)
        return []


class _Loop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._selector = _Selector(self._idle)
        made = itertools.count()
        self.set_task_factory(lambda loop, coroutine, **options: _Task(coroutine, next(made), loop=loop, **options))
        self.set_exception_handler(lambda *_: None)

    def _idle(self, timeout: float | None) -> None:
        raise NotImplementedError

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _Task(asyncio.Task[Any]):
    """A TaskGroup cancels in the order of a set of tasks: by address. Here by creation, as in a flow."""

    def __init__(self, coroutine: Any, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualTime(_Loop):
    """Everything takes exactly as long as it says."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _idle(self, timeout: float | None) -> None:
        assert timeout is not None, "stuck"
        self._now += timeout


class GivenOrder(_Loop):
    """Everything ends in the order in which a flow received it, whatever the time."""

    def __init__(self, ends: Sequence[tuple[Any, Any]]) -> None:
        super().__init__()
        self._ends, self.open = list(ends), dict[Any, Any]()

    def time(self) -> float:
        return 0.0

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = self.open[node_of_timer.get()] = asyncio.TimerHandle(delay, callback, args, self, context)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_later(when, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass

    def _idle(self, timeout: float | None) -> None:
        while self._ends:
            node, result = self._ends.pop(0)
            one = self.open.pop(node)
            if isinstance(one, asyncio.TimerHandle):
                if not one.cancelled():
                    self._ready.append(one)  # type: ignore[attr-defined]
                    return
            elif not one.done():
                if result == FAILED:
                    one.set_exception(ValueError("failed"))
                else:
                    one.set_result(result)
                return
        raise AssertionError("stuck: the flow has received nothing more")


FAILED = "!failed"


class Reference:
    """The environment of a standard loop."""

    def __init__(self, loop: _Loop) -> None:
        self.loop, self.trace = loop, list[Any]()

    def log(self, *what: Any) -> None:
        self.trace.append(list(what))

    async def leaf(self, kind: str, node: Any, seconds: float) -> Any:
        if kind == "now":
            return node
        if isinstance(self.loop, GivenOrder):
            if kind == "sent":
                await self._until(f"{node}s")
            return await self._until(node)
        await asyncio.sleep(seconds)
        if kind == "fail":
            raise ValueError("failed")
        return node if kind not in ("sleep", "event") else None

    async def _until(self, node: Any) -> Any:
        assert isinstance(self.loop, GivenOrder)
        future = self.loop.open[node] = self.loop.create_future()
        return await future

    async def first(self, leaves: Sequence[Program]) -> int:
        assert isinstance(self.loop, GivenOrder)
        ends = [self.loop.create_future() for _ in leaves]
        self.loop.open |= {one["id"]: end for one, end in zip(leaves, ends, strict=True)}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return next(index for index, end in enumerate(ends) if end in done)
        finally:
            for end in ends:
                end.cancel()


def reference(program: Program, loop: _Loop) -> list[Any]:
    """[result, trace], as asyncio.run would make them on that loop."""
    env = Reference(loop)
    result = loop.run_until_complete(interpret(program, env))
    left = sorted(asyncio.all_tasks(loop), key=hash)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    found: list[Any] = json.loads(json.dumps([result, env.trace]))
    return found
