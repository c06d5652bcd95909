"""A schedule as it is planned: its name, its runs, and which missed ticks still run. Pure: no clock."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rival_client.model.checks import arguments
from rival_client.model.checks.arguments import MAX_NAME as MAX_RUN_ID
from rival_client.model.cron import MOMENT, Rule
from rival_client.model.payload import Json
from rival_client.model.starts.start_options import NO_OPTIONS, StartOptions

CatchUp = Literal["none", "last", "all"]
#: A tick that is not older than this, in seconds, is merely late: it runs whatever the policy for missed ones.
LATE = 60.0
#: Of more missed ticks than this only the latest are caught up with.
MOST_MISSED = 1000

#: With the time of a tick it makes a run's id.
MAX_NAME = MAX_RUN_ID - len("@2026-01-31T02:00:00Z")


@dataclass(frozen=True)
class Planned:
    """What is to be started when, checked."""

    rule: Rule
    catch_up: CatchUp
    input: Json
    options: StartOptions = NO_OPTIONS


def checked_catch_up(value: Any) -> CatchUp:
    found: CatchUp = arguments.choice("catch_up", value, get_args(CatchUp))
    return found


def ticks_to_run(rule: Rule, catch_up: CatchUp, since: dt.datetime, now: dt.datetime) -> list[dt.datetime]:
    """Of the ticks from `since` until `now`, those that get a run, the oldest first."""
    late = now - dt.timedelta(seconds=LATE)
    on_time = list(rule.between(max(since, late), now))
    if catch_up == "none" or since >= late:
        return on_time
    if catch_up == "last":
        return on_time or _last(rule.between(_not_too_far(rule, since, now), late), 1)
    return _last(rule.between(_not_too_far(rule, since, now), late - MOMENT), MOST_MISSED) + on_time


def _not_too_far(rule: Rule, since: dt.datetime, now: dt.datetime) -> dt.datetime:
    """An interval's ticks need not be counted one by one to find the latest."""
    if rule.every is None:
        return since
    return max(since, now - dt.timedelta(seconds=rule.every * (MOST_MISSED + 1) + LATE))


def _last(ticks: Iterable[dt.datetime], most: int) -> list[dt.datetime]:
    return list(deque(ticks, maxlen=most))


def checked_name(name: Any) -> str:
    return arguments.text("name", name, MAX_NAME)


def run_id_at(schedule: str, tick: dt.datetime) -> str:
    """The same id for every keeper that fires the tick: so it gets at most one run."""
    return f"{schedule}@{tick.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%S}Z"
