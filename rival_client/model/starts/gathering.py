"""Starts that become one run: debounced ones, and batches. This module checks their options; it has no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts

MAX_BATCH = 10_000
#: Seconds for which a debounced run is postponed at most, unless `max_wait` says otherwise.
MAX_WAIT = 60.0
#: What has no meaning for a run that several starts share.
_NOT_WITH = ("delay", "scheduled_at", "deadline", "singleton", "on_conflict")


@dataclass(frozen=True)
class Gathering:
    """How starts with the same key become one run, until it begins."""

    #: With the workflow it names the pending run; it has the kind, so that kinds do not mix: a list of inputs and one
    #: input do not fit into one run.
    key: str
    #: Seconds from a start until the run begins: from the last one if `postpones`, else from the first one.
    wait: float
    postpones: bool
    #: Seconds from the first start at most.
    max_wait: float
    #: The run begins at once when it has so many inputs; None: only the time decides.
    most: int | None
    #: The input is the list of all inputs; otherwise that of the last start.
    collects: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Gathering | None:
        debounce, batch = given.get("debounce"), given.get("batch")
        if debounce is None and batch is None:
            _refuse(given, ("key",), "give it with `debounce` or `batch`")
            _refuse(given, ("max_wait", "collect"), "give it with `debounce`")
            _refuse(given, ("within",), "give it with `batch`")
            return None
        if debounce is not None and batch is not None:
            raise InvalidArgument("batch", "give either `debounce` or `batch`.")
        _refuse(given, _NOT_WITH, "several starts share the run: leave it out")
        key = "" if given.get("key") is None else str(given["key"])
        return _debounced(given, debounce, key) if debounce is not None else _batched(given, batch, key)


def _debounced(given: Mapping[str, Any], wait: float, key: str) -> Gathering:
    _refuse(given, ("within",), "it is for `batch`: `max_wait` limits a debounced start")
    max_wait = MAX_WAIT if given.get("max_wait") is None else given["max_wait"]
    if max_wait < wait:
        raise InvalidArgument("max_wait", f"{max_wait:g} s is less than debounce, {wait:g} s.")
    kind, collects = ("collect", True) if given.get("collect") else ("debounce", False)
    return Gathering(f"{kind}:{key}", wait, True, max_wait, None, collects)


def _batched(given: Mapping[str, Any], most: int | None, key: str) -> Gathering:
    _refuse(given, ("max_wait", "collect"), "it is for `debounce`")
    within = given.get("within")
    if within is None:
        raise InvalidArgument("within", "give the seconds that a batch waits for more inputs, as in within=10.")
    return Gathering(f"batch:{key}", within, False, within, most, True)


def _refuse(given: Mapping[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if given.get(name) is not None:
            raise InvalidArgument(name, f"{why}.")


def batch_size(argument: str, value: object) -> int:
    return amounts.whole(argument, value, 1, MAX_BATCH)
