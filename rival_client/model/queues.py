"""Names of queues and levels of priority, as definitions, runs, rows and messages have them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from rival_client.model import arguments
from rival_client.model.record import record

#: The name that means the fleet's own queue, whatever RIVAL_QUEUE calls it.
DEFAULT_QUEUE = "default"
QUEUE_NAME = r"[A-Za-z0-9_.:-]{1,100}"
QUEUE_EXPECTED = "the name of a queue: 1 to 100 letters, digits or any of . : _ -"

Priority = Literal["high", "normal", "low"]
#: As rows store it: the lowest level starts first.
LEVELS: dict[str, int] = {"high": -1, "normal": 0, "low": 1}
_NAMES = {level: name for name, level in LEVELS.items()}


def is_queue(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(QUEUE_NAME, name) is not None


def broker_queue(name: str | None, default: str) -> str:
    """The queue in the broker that a name means. None: the fleet's own."""
    return default if name in (None, DEFAULT_QUEUE) else str(name)


def level_of(priority: str | None) -> int | None:
    """None: not given."""
    return None if priority is None else LEVELS[priority]


def priority_name(level: int | None) -> str:
    return _NAMES[level or 0]


def priority(argument: str, value: object) -> str:
    if not isinstance(value, str) or value not in LEVELS:
        raise arguments.invalid(argument, value, f"a priority: give one of {', '.join(LEVELS)}")
    return value


def given_priority(level: int | None) -> str | None:
    """The name of a level that a row has; None: it has none of its own."""
    return None if level is None else priority_name(level)


def split_queues(text: str) -> tuple[str, ...]:
    """The names in a list with commas, each once."""
    return tuple(dict.fromkeys(name for name in (part.strip() for part in text.split(",")) if name))


@record(frozen=True)
class Route:
    """Where the messages of a step or a run go. `queue` None: the fleet's own."""

    queue: str | None = None
    level: int = 0

    def __bool__(self) -> bool:
        """False: the usual one."""
        return self.queue is not None or self.level != 0


USUAL_ROUTE = Route()


class ServedQueues:
    """The queues that a worker consumes. It runs no step of another one, also not in place."""

    def __init__(self, names: Iterable[str] = (), default: str = "") -> None:
        """`default`: what the broker calls the fleet's own queue. Without names, a worker serves that one."""
        self.default = default
        found = [DEFAULT_QUEUE if name == default else name for name in names]
        self.names: tuple[str, ...] = tuple(dict.fromkeys(found)) or (DEFAULT_QUEUE,)

    def __contains__(self, queue: str | None) -> bool:
        return (queue or DEFAULT_QUEUE) in self.names

    @property
    def in_broker(self) -> tuple[str, ...]:
        return tuple(broker_queue(name, self.default) for name in self.names)


# -- ageing ---------------------------------------------------------------------------------------------------
#
# A step that no worker takes rises level by level, so that a low one starts within a bounded time, however many high
# ones there are. A level is a list in the broker: to rise, a message is published again in the list of the next level;
# its token makes the copy harmless.

HIGH, NORMAL, LOW = (LEVELS[name] for name in ("high", "normal", "low"))
#: Looks of the keeper after which a step rises: 40 and 80 s after its first message, if the grace period is 10 s.
FIRST_RISE, SECOND_RISE = 2, 3


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
