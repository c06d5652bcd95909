"""The ids of runs that are about to start: given ones are checked, others are made."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from rival_client.errors import InvalidArgument
from rival_client.model.checks import arguments
from rival_client.model.checks.argument_errors import shown

T = TypeVar("T")


def new_run_id() -> str:
    """Unique, and rising with time so that neighbours in time are neighbours in the index."""
    return f"{int(time.time() * 1000):012x}{secrets.token_hex(10)}"


def given_or_new_id(given: str | None, argument: str = "run_id") -> str:
    return new_run_id() if given is None else arguments.new_id(argument, given)


def named_run(workflow: str | None, run_id: str | None) -> tuple[str | None, str]:
    """Of `wait(run_id)` and `wait(workflow, run_id)`: the workflow if one was given, and the run."""
    named, run = (None, workflow) if run_id is None else (workflow, run_id)
    if run is None:
        raise InvalidArgument("run_id", "give the id of the run, such as wait(started.run_id)")
    if hasattr(run, "run_id"):
        raise InvalidArgument(
            "run_id", f"{type(run).__name__} is not a run id: give its run_id, or call its own wait()"
        )
    return arguments.optional(arguments.name, "workflow", named), arguments.run_id(run)


def run_ids_for(count: int, given: Sequence[str] | None) -> list[str]:
    """One distinct id per input: those given, or new ones."""
    ids = [new_run_id() for _ in range(count)] if given is None else arguments.ids("run_ids", given)
    if len(ids) != count:
        raise InvalidArgument("run_ids", f"{len(ids)} ids for {count} inputs: give one id for each input.")
    if len(set(ids)) != count:
        twice = next(one for one in ids if ids.count(one) > 1)
        places = [index for index, one in enumerate(ids) if one == twice]
        raise InvalidArgument(
            "run_ids",
            f"{shown(twice)} is the id of inputs[{places[0]}] and of inputs[{places[1]}]: "
            "give each input an id of its own, or give the input once.",
        )
    return ids


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
