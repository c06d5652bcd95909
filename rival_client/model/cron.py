"""Computes the ticks of a schedule: a cron expression in a time zone, or an interval in seconds. Pure: no clock."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rival_client.errors import InvalidArgument
from rival_client.model.checks import argument_errors, arguments

#: Ten years.
_LONGEST = 3650 * 86_400
_MAX_CRON = 1000
MOMENT = dt.timedelta(microseconds=1)
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
        """ValueError: it never occurs again."""
        found = next(self._from(at), None)
        if found is None:
            raise ValueError(f"{self.cron!r} never occurs")
        return found

    def between(self, first: dt.datetime, last: dt.datetime) -> Iterator[dt.datetime]:
        """Both included."""
        for tick in self._from(first - MOMENT):
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
        """The ticks after `at`. In the second of two equal hours CronSim begins with the first one, and around a
        skipped hour it may give a time twice: only a later time than the one before is a tick."""
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


def checked_rule(when: Any, timezone: Any = "UTC") -> Rule:
    """A cron expression, or seconds or a timedelta; InvalidArgument, with the cure, when it is neither."""
    if isinstance(when, str):
        cron = arguments.text("when", when, _MAX_CRON)
        rule = Rule(cron=" ".join(cron.split()), timezone=_checked_zone(timezone))
        _check_cron(rule)
        return rule
    seconds = when.total_seconds() if isinstance(when, dt.timedelta) else when
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise argument_errors.invalid("when", when, f"a cron expression, seconds or a timedelta: {_CURE}")
    if not 1 <= seconds <= _LONGEST or seconds % 1:
        expected = f"an interval: an interval is whole seconds, at least 1 and at most {_LONGEST}"
        raise argument_errors.invalid("when", when, expected)
    if timezone != "UTC":
        raise InvalidArgument("timezone", "an interval has no time zone: give a cron expression, or leave it out.")
    return Rule(every=int(seconds))


def _checked_zone(name: Any) -> str:
    try:
        return ZoneInfo(arguments.name("timezone", name)).key
    except (OSError, LookupError, ValueError):
        cure = "write it as in 'Europe/Berlin' (or install the package tzdata)"
        raise argument_errors.invalid("timezone", name, f"a time zone that is known here: {cure}") from None


def _check_cron(rule: Rule) -> None:
    # CronSim also takes a sixth field, of seconds; an interval says that better.
    if len((rule.cron or "").split()) != 5:
        raise argument_errors.invalid("when", rule.cron, f"a cron expression: {_CURE}")
    try:
        rule.next_after(_EPOCH)
    except (CronSimError, ValueError) as error:
        why = str(error).lower()
        raise argument_errors.invalid("when", rule.cron, f"a valid cron expression ({why}): {_CURE}") from error
