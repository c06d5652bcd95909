"""How a limit is divided among its rows: shards of a large maximum, the pace of a rate. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

#: From this maximum on, a gate has shards: one for each so many, up to so many.
SHARDED_FROM, PER_SHARD, MAX_SHARDS = 16, 8, 16
#: How many starts of a rate are called in advance: those of so many seconds, and at least so many.
CALLED_SECONDS, CALLED_LEAST = 0.25, 2


def shards_of(max: int) -> int:
    return min(MAX_SHARDS, max // PER_SHARD) if max >= SHARDED_FROM else 1


def share(max: int, shards: int, shard: int) -> int:
    """The part of the maximum that one shard has: the parts add up to the maximum."""
    if shard >= shards:
        return 0
    return max // shards + (shard < max % shards)


def home_shard(run_id: str, path: str, shards: int) -> int:
    """The shard at which a step looks first, and at which it waits."""
    return zlib.crc32(f"{run_id}\x1f{path}".encode()) % shards if shards > 1 else 0


@dataclass(frozen=True)
class Pace:
    """A rate as a gate has it: seconds between two starts, and how far ahead of that a start may be.

    Never more than `max` (plus `burst`) starts in any `per` seconds. A twentieth of them may come early, so that a
    message that is a little late costs nothing.
    """

    gap: float
    slack: float


def pace(max: int, per: float, burst: int = 0) -> Pace:
    early = max // 20
    gap = per / (max - early)
    return Pace(gap, (early + burst) * gap)


def called_ahead(gap: float) -> int:
    return int(min(1000, max(CALLED_LEAST, CALLED_SECONDS / gap)))
