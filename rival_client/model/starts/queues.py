"""Names of queues, as definitions, runs, rows and messages have them, and the queues that a worker serves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rival_client.model.record import record

#: The name that means the fleet's own queue, whatever RIVAL_QUEUE calls it.
DEFAULT_QUEUE = "default"
QUEUE_NAME = r"[A-Za-z0-9_.:-]{1,100}"
QUEUE_EXPECTED = "the name of a queue: 1 to 100 letters, digits or any of . : _ -"


def is_queue(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(QUEUE_NAME, name) is not None


def broker_queue(name: str | None, default: str) -> str:
    """The queue in the broker that a name means. None: the fleet's own."""
    return default if name in (None, DEFAULT_QUEUE) else str(name)


def split_queues(text: str) -> tuple[str, ...]:
    """The names in a list with commas, each once."""
    return tuple(dict.fromkeys(name for name in (part.strip() for part in text.split(",")) if name))


@record(frozen=True)
class Route:
    """Where the messages of a step or a run go. `queue` None: the fleet's own."""

    queue: str | None = None
    level: int = 0

    def __bool__(self) -> bool:
        """False for `USUAL_ROUTE`: the fleet's own queue, without a priority."""
        return self.queue is not None or self.level != 0


USUAL_ROUTE = Route()


class ServedQueues:
    """The queues that a worker consumes. It runs no step of another one, also not in place."""

    def __init__(self, names: Iterable[str] = (), default: str = "", *, every: bool = False) -> None:
        """`default`: what the broker calls the fleet's own queue. Without names, a worker serves that one. `every`: it
        serves all queues, whatever their names."""
        self.default, self.every = default, every
        found = [DEFAULT_QUEUE if name == default else name for name in names]
        self.names: tuple[str, ...] = tuple(dict.fromkeys(found)) or (DEFAULT_QUEUE,)

    def __contains__(self, queue: str | None) -> bool:
        return self.every or (queue or DEFAULT_QUEUE) in self.names

    @property
    def in_broker(self) -> tuple[str, ...]:
        return tuple(broker_queue(name, self.default) for name in self.names)


# -- ageing ---------------------------------------------------------------------------------------------------
#
# A step that no worker takes rises level by level, so that a low one starts within a bounded time, however many high
# ones there are. A level is a list in the broker: to rise, a message is published again in the list of the next level;
# its token makes the copy harmless.
