"""Decisions about time: when a row is due, who publishes its message, and when the keeper looks at it again. Pure.

A near timer has a message with a countdown, published right after the commit; the keeper looks at its row only after a
grace period, in case the message was lost. A far timer waits in the table; the keeper publishes its message shortly
before it is due.
"""

from __future__ import annotations

from dataclasses import dataclass

#: `rings` of a row whose message was never published: the keeper publishes it as soon as it looks at it.
NEVER_PUBLISHED = -1
#: The keeper looks at a far timer this many seconds before it is due, so that a countdown can make it precise.
LEAD = 5.0
#: A timer up to this many seconds ahead has a countdown, where no setting says otherwise.
NEAR = 30.0
#: A message may arrive this many seconds early, by the precision of countdowns.
EARLY = 0.005
#: The longest time between two looks of the keeper at the same row.
BACKOFF_MAX = 600.0


def is_near(seconds: float | None, near: float) -> bool:
    """Whether a timer uses a countdown. None: it has no time."""
    return seconds is not None and seconds <= near


def is_due(seconds_left: float | None) -> bool:
    return (seconds_left or 0.0) <= EARLY


@dataclass(frozen=True)
class NextLook:
    """When the keeper looks at a row, in seconds from now, and the value of its column `rings`."""

    seconds: float
    rings: int


def look_at(seconds: float, published: bool, grace: float) -> NextLook:
    """The keeper's look at a row that is due in `seconds`. `published`: its message has a countdown."""
    return NextLook(seconds + grace, 0) if published else NextLook(seconds - LEAD, NEVER_PUBLISHED)


def first_rings(grace: float) -> int:
    """`rings` of a new row. Without a grace period the committer publishes no message, so the keeper must."""
    return NEVER_PUBLISHED if grace == 0 else 0


def backoff(rings: int, first: float, longest: float) -> float:
    """Seconds until the keeper looks again at a row whose message was published `rings` times before: doubling."""
    return float(min(first * 2.0 ** max(0, rings), longest))
