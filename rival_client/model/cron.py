"""When a schedule's ticks are: a cron expression in a time zone, or every so many seconds. Pure: no clock."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rival_client.errors import InvalidArgument
from rival_client.model import arguments
from rival_client.model.arguments import MAX_NAME as MAX_RUN_ID
from rival_client.model.payload import Json
from rival_client.model.start_options import NO_OPTIONS, StartOptions

CatchUp = Literal["none", "last", "all"]
#: A tick that is not older than this, in seconds, is merely late: it runs whatever the policy for missed ones.
LATE = 60.0
#: Of more missed ticks than this only the latest are caught up with.
MOST_MISSED = 1000

#: With the time of a tick it makes a run's id.
MAX_NAME = MAX_RUN_ID - len("@2026-01-31T02:00:00Z")

#: Ten years.
_LONGEST = 3650 * 86_400
_MAX_CRON = 1000
_MOMENT = dt.timedelta(microseconds=1)
_CURE = 'write five fields as in "*/5 * * * *" (minute, hour, day of month, month, day of week)'


@dataclass(frozen=True)
class Rule:
    """Either `cron`, read in the time zone, or `every` so many seconds, counted from 1970-01-01T00:00:00Z: so all
    workers agree, and a restart shifts nothing.
    """

    cron: str | None = None
    every: int | None = None
    timezone: str = "UTC"

    def next_after(self, at: dt.datetime) -> dt.datetime:
        """ValueError: it never comes again."""
        found = next(self._from(at), None)
        if found is None:
            raise ValueError(f"{self.cron!r} never comes")
        return found

    def between(self, first: dt.datetime, last: dt.datetime) -> Iterator[dt.datetime]:
        """Both included."""
        for tick in self._from(first - _MOMENT):
            if tick > last:
                return
            yield tick

    def _from(self, at: dt.datetime) -> Iterator[dt.datetime]:
        if self.every is None:
            yield from self._of_cron(at)
            return
        # Whole microseconds: a float of seconds since 1970 cannot distinguish a tick from the moment just before it.
        ticks = (at - _EPOCH) // dt.timedelta(seconds=self.every)
        while True:
            ticks += 1
            yield _EPOCH + ticks * dt.timedelta(seconds=self.every)

    def _of_cron(self, at: dt.datetime) -> Iterator[dt.datetime]:
        """Asked in the second of two equal hours CronSim begins with the first, and in the hour that is left out it
        may have one time twice: only what is later than the one before is a tick."""
        for local in CronSim(self.cron or "", at.astimezone(ZoneInfo(self.timezone))):
            tick = local.astimezone(dt.UTC)
            if tick > at:
                yield tick
                at = tick

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {self.every} s"
        return f"{self.cron} ({self.timezone})"


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Planned:
    """What is to be started when, checked."""

    rule: Rule
    catch_up: CatchUp
    input: Json
    options: StartOptions = NO_OPTIONS


def checked_rule(when: Any, timezone: Any = "UTC") -> Rule:
    """A cron expression, or seconds or a timedelta; InvalidArgument, with the cure, when it is neither."""
    if isinstance(when, str):
        cron = arguments.text("when", when, _MAX_CRON)
        rule = Rule(cron=" ".join(cron.split()), timezone=_checked_zone(timezone))
        _check_cron(rule)
        return rule
    seconds = when.total_seconds() if isinstance(when, dt.timedelta) else when
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise arguments.invalid("when", when, f"a cron expression, seconds or a timedelta: {_CURE}")
    if not 1 <= seconds <= _LONGEST or seconds % 1:
        expected = f"an interval: an interval is whole seconds, at least 1 and at most {_LONGEST}"
        raise arguments.invalid("when", when, expected)
    if timezone != "UTC":
        raise InvalidArgument("timezone", "an interval has no time zone: give a cron expression, or leave it out.")
    return Rule(every=int(seconds))


def checked_catch_up(value: Any) -> CatchUp:
    found: CatchUp = arguments.choice("catch_up", value, get_args(CatchUp))
    return found


def _checked_zone(name: Any) -> str:
    try:
        return ZoneInfo(arguments.name("timezone", name)).key
    except (OSError, LookupError, ValueError):
        cure = "write it as in 'Europe/Berlin' (or install the package tzdata)"
        raise arguments.invalid("timezone", name, f"a time zone that is known here: {cure}") from None


def _check_cron(rule: Rule) -> None:
    # CronSim also takes a sixth field, of seconds; an interval says that better.
    if len((rule.cron or "").split()) != 5:
        raise arguments.invalid("when", rule.cron, f"a cron expression: {_CURE}")
    try:
        rule.next_after(_EPOCH)
    except (CronSimError, ValueError) as error:
        why = str(error).lower()
        raise arguments.invalid("when", rule.cron, f"a cron expression that comes ({why}): {_CURE}") from error


def ticks_to_run(rule: Rule, catch_up: CatchUp, since: dt.datetime, now: dt.datetime) -> list[dt.datetime]:
    """Of the ticks from `since` until `now`, those that get a run, the oldest first."""
    late = now - dt.timedelta(seconds=LATE)
    on_time = list(rule.between(max(since, late), now))
    if catch_up == "none" or since >= late:
        return on_time
    if catch_up == "last":
        return on_time or _last(rule.between(_not_too_far(rule, since, now), late), 1)
    return _last(rule.between(_not_too_far(rule, since, now), late - _MOMENT), MOST_MISSED) + on_time


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
