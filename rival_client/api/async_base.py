"""The base of every part of `AsyncRival`: the sync client whose methods it calls, and the threads that call them.

Each async part is in the module of the same part of `Rival`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from rival_client.settings import Settings

if TYPE_CHECKING:
    from rival_client.api.client import Rival

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClientBase:
    settings: Settings
    _rival: Rival
    _threads: ThreadPoolExecutor

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._rival._check_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))


def awaitable(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncClientBase, P], Coroutine[Any, Any, T]]:
    """The method of `AsyncRival` that calls this method of its `Rival` on a thread: same parameters, same docstring."""

    @wraps(method)
    async def call(self: AsyncClientBase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        own: Callable[P, T] = getattr(self._rival, method.__name__)
        return await self._call(own, *args, **kwargs)

    return call
