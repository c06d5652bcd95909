"""Levels of priority: their names and numbers, and how waiting raises them. Pure."""

from __future__ import annotations

from typing import Literal

from rival_client.model.checks import argument_errors

Priority = Literal["high", "normal", "low"]
#: As rows store it: the lowest level starts first.
LEVELS: dict[str, int] = {"high": -1, "normal": 0, "low": 1}
_NAMES = {level: name for name, level in LEVELS.items()}
HIGH, NORMAL, LOW = (LEVELS[name] for name in ("high", "normal", "low"))
#: Looks of the keeper after which a step rises: 40 and 80 s after its first message, if the grace period is 10 s.
FIRST_RISE, SECOND_RISE = 2, 3


def level_of(priority: str | None) -> int | None:
    """None: not given."""
    return None if priority is None else LEVELS[priority]


def priority_name(level: int | None) -> str:
    return _NAMES[level or 0]


def priority(argument: str, value: object) -> str:
    if not isinstance(value, str) or value not in LEVELS:
        raise argument_errors.invalid(argument, value, f"a priority: give one of {', '.join(LEVELS)}")
    return value


def given_priority(level: int | None) -> str | None:
    """The name of a level that a row has; None: it has none of its own."""
    return None if level is None else priority_name(level)


def aged_level(level: int, looks: int, *, high_waits: bool = False) -> int:
    """The level after so many looks. A normal step rises only past high ones that wait (`high_waits`)."""
    if level == LOW and looks >= FIRST_RISE:
        return HIGH if looks >= SECOND_RISE else NORMAL
    if level == NORMAL and looks >= SECOND_RISE and high_waits:
        return HIGH
    return level


def rises(level: int, looks: int, *, high_waits: bool = False) -> bool:
    """It rises at this look."""
    before = aged_level(level, looks - 1, high_waits=high_waits)
    return aged_level(level, looks, high_waits=high_waits) != before
