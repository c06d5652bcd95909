"""Says whether a flow's function may still use `ctx`. When the attempt has ended (suspended, moved, failed, returned),
every call raises, whatever the `finally` and `except` blocks of the flow try to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rival_workers.errors import NotInFlows

T = TypeVar("T")


class _Ended(NotInFlows):
    """The flow's function has ended."""


class FlowGuard:
    def __init__(self, thread: int) -> None:
        """`thread`: the one that runs the flow's function."""
        self._thread, self._in_step = thread, False
        #: Why the attempt has ended: raised by every call from then on.
        self.stopped: BaseException | None = None

    def check(self) -> None:
        """Before anything that a flow asks for."""
        self.check_not_stopped()
        if threading.get_ident() != self._thread or self._in_step:
            raise NotInFlows(
                "ctx of a flow was used inside a step, or in another thread. Only the flow's own function may use it: "
                "let the step return a value, and call ctx with that."
            )

    def check_not_stopped(self) -> None:
        if self.stopped is not None:
            raise self.stopped

    def guarded(self, action: Callable[[], T], *harmless: type[Exception]) -> T:
        """What fails here ends the attempt, also if the flow catches it; unless it is `harmless`."""
        try:
            return action()
        except harmless:
            raise
        except BaseException as error:
            self.stopped = error
            raise

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """The flow's thread runs a step, which may not use ctx."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    def end(self) -> None:
        """The attempt is over: from now on its ctx can do nothing."""
        if self.stopped is None:
            self.stopped = _Ended("the flow has ended: its ctx can do nothing any more")

    @property
    def is_interrupted(self) -> bool:
        """The attempt has ended before the flow's function could."""
        return self.stopped is not None and not isinstance(self.stopped, _Ended)

    def raise_interruption(self) -> None:
        if self.stopped is not None and self.is_interrupted:
            raise self.stopped
