"""Checks of starts that both clients share: one run, many at once, and in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rival_client.api.handles import StartedStatus
from rival_client.errors import InvalidArgument
from rival_client.model.inputs import InputValidator
from rival_client.model.starts.run_ids import given_or_new_id
from rival_client.model.starts.start_options import StartOptions
from rival_client.model.starts.starts import Start

CHUNK = 1000


class Inserted(NamedTuple):
    """The runs of a `run_many` that are new; and new ones that wait for another one with their singleton key."""

    created: set[str]
    queued: set[str]

    @property
    def all(self) -> set[str]:
        return self.created | self.queued


def status_in(found: Iterable[Inserted], run_id: str) -> StartedStatus:
    for one in found:
        if run_id in one.created:
            return "started"
        if run_id in one.queued:
            return "queued"
    return "running"


def start_of(
    validator: InputValidator, input: Any, run_id: str | None, how: StartOptions, connection: Any = None
) -> Start:
    """One run. A run that collects inputs has a list of them as its input."""
    if connection is not None and how.on_conflict == "cancel":
        raise InvalidArgument(
            "on_conflict",
            '"cancel" is not possible in your own transaction: cancel the run first, or leave connection out.',
        )
    collects = how.gathering is not None and how.gathering.collects
    if how.gathering is not None and run_id is not None:
        raise InvalidArgument("run_id", "several starts share the run: leave it out, and give `key`.")
    how.check_steps(validator.workflow)
    return Start(validator.workflow, {given_or_new_id(run_id): validator.validate([input] if collects else input)}, how)


def check_many(how: StartOptions, validator: InputValidator) -> None:
    """Checks the options of `run_many`."""
    how.check_steps(validator.workflow)
    how.refuse_gathering("of run_many: start each with `run`")
    if how.singleton is not None and how.on_conflict != "queue":
        advice = 'only one of many runs could have it: give on_conflict="queue", so that they wait for one another.'
        raise InvalidArgument("singleton", advice)
