"""Tasks and futures of an async flow. Their hashes are the same in every process, because asyncio keeps tasks in sets
and cancels, returns and subscribes in the order of those sets.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from rival_workers.runtime.flow.pending_operations import Operation, State

if TYPE_CHECKING:
    from rival_workers.runtime.flow.loop import FlowLoop

#: A task's name becomes the name of its lane if it can stand in a path.
_LANE_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)


class LaneTask(asyncio.Task[Any]):
    """A task is a lane. The lane has the name of the task, or its number among the unnamed tasks of its parent."""

    def __init__(self, coroutine: Any, *, loop: FlowLoop, parent: LaneTask | None, **options: Any) -> None:
        # Small numbers without gaps: a set of tasks is then mostly iterated in the order of their creation.
        self._hash = loop.scheduler.salt + len(loop.lanes)
        self._parent, self._lane, self._name_of_lane = parent, "", ""
        self._unnamed, self._named = 0, Counter[str]()
        #: A checkpoint or a task has a path in this lane, so that it keeps its name.
        self._is_used = False
        if parent is not None:
            parent._unnamed += 1
            self._number = parent._unnamed
        super().__init__(coroutine, loop=loop, **options)
        loop.lanes.append(self)

    def __hash__(self) -> int:
        return self._hash

    @property
    def lane(self) -> str:
        """`2`, `import`, `2.import~2.1`; the flow's own is empty."""
        if self._parent is not None and not self._is_used:
            own = self._name_of_lane or str(self._number)
            above = self._parent.lane
            self._lane = f"{above}.{own}" if above else own
        self._is_used = True
        return self._lane

    def set_name(self, value: object) -> None:
        """asyncio may name a task after it has made it. Named tasks have no number, so that a new one before others
        does not change their numbers."""
        super().set_name(value)
        parent, name = self._parent, str(value)
        if parent is None or self._is_used or self._name_of_lane or not _LANE_NAME.fullmatch(name):
            return
        parent._named[name] += 1
        times = parent._named[name]
        self._name_of_lane = name if times == 1 else f"{name}~{times}"
        if self._number == parent._unnamed:
            parent._unnamed -= 1


class FlowFuture(asyncio.Future[Any]):
    def __init__(self, loop: FlowLoop, number: int) -> None:
        self._hash = loop.scheduler.salt + number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._hash


class OperationFuture(asyncio.Future[Any]):
    """The future of an operation that a lane awaits."""

    def __init__(self, operation: Operation, loop: FlowLoop) -> None:
        self._operation = operation
        super().__init__(loop=loop)
        operation.when_over.append(self.settle)

    def __hash__(self) -> int:
        return hash(self._operation)

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self._operation.cancel()
        return cancelled

    def settle(self) -> None:
        """The operation has ended, or was given up."""
        if self.done():
            return
        if self._operation.state is State.GIVEN_UP:
            super().cancel()
            return
        try:
            self.set_result(self._operation.value())
        except Exception as error:
            self.set_exception(error)
