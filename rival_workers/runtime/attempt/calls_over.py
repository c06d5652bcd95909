"""Calls of user functions whose outcome does not count any more: the attempt has timed out, its run was cancelled, or
another process has taken it over. Their coroutines are cancelled; a function in a thread cannot be interrupted.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

from rival_client.model.why.why_facts import ABANDONED
from rival_workers.runtime.flow.stop_signals import AttemptOver

#: Seconds that a cancelled coroutine has for its cleanup. If it still runs then, its slot is given to other steps.
CLEANUP = 5.0
#: How many calls a report names.
_MOST = 5
_lock = threading.Lock()


class UserCall:
    """One call: of the function of an attempt, or of a step of a flow. Coroutines that are awaited within its block
    belong to it."""

    __slots__ = ("_cancels", "_token", "over_since", "path", "run_id")
    _token: Token[tuple[UserCall, ...]]

    def __init__(self, run_id: str, path: str) -> None:
        self.run_id, self.path = run_id, path
        self._cancels: list[Callable[[UserCall], None]] = []
        #: When it was found to be over, in seconds since the epoch.
        self.over_since: float | None = None

    def __enter__(self) -> None:
        self._token = _current.set((*_current.get(), self))

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def end(self) -> None:
        """It is over: cancel its coroutines, and those that begin later."""
        with _lock:
            if self.over_since is not None:
                return
            self.over_since, cancels = time.time(), list(self._cancels)
        for cancel in cancels:
            cancel(self)

    @property
    def is_awaiting(self) -> bool:
        """It awaits a coroutine, and is not over."""
        return bool(self._cancels) and self.over_since is None

    def check(self) -> None:
        if self.over_since is not None:
            raise AttemptOver

    def add(self, cancel: Callable[[UserCall], None]) -> None:
        with _lock:
            self._cancels.append(cancel)
            is_over = self.over_since is not None
        if is_over:
            cancel(self)

    def remove(self, cancel: Callable[[UserCall], None]) -> None:
        with _lock:
            self._cancels.remove(cancel)

    def __str__(self) -> str:
        since = dt.datetime.fromtimestamp(self.over_since or 0.0, dt.UTC)
        return f"step {self.path!r} of run {self.run_id!r} (since {since:%Y-%m-%d %H:%M:%S} UTC)"


#: The call that runs in this context; in a step of a flow, after that of the flow.
_current: ContextVar[tuple[UserCall, ...]] = ContextVar("rival_calls", default=())


@contextmanager
def cancelled_when_over(cancel: Callable[[UserCall], None]) -> Iterator[None]:
    """Call `cancel` when a call of this context is over. Raises AttemptOver at the end if one is."""
    calls = _current.get()
    for call in calls:
        call.add(cancel)
    try:
        yield
    finally:
        for call in calls:
            call.remove(cancel)
        for call in calls:
            call.check()


def still_running(calls: Sequence[UserCall]) -> str | None:
    """Names the calls that run although they have been over for some time; None: there are none."""
    late = sorted((call.over_since, str(call)) for call in calls if _is_late(call))
    if not late:
        return None
    named = ", ".join(text for _, text in late[:_MOST])
    more = f" and {len(late) - _MOST} more" if len(late) > _MOST else ""
    return f"{ABANDONED}: {named}{more}"


def _is_late(call: UserCall) -> bool:
    return call.over_since is not None and time.time() - call.over_since > CLEANUP


def count_over(calls: Mapping[Any, UserCall]) -> int:
    return sum(call.over_since is not None for call in list(calls.values()))
