"""How a limit is divided among its rows: shards of a large maximum, the pace of a rate. And why it is full. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

#: A gate with this maximum or more has shards: one for every `PER_SHARD` slots, at most `MAX_SHARDS`.
SHARDED_FROM, PER_SHARD, MAX_SHARDS = 16, 8, 16
#: Seconds until the next start of a rate whose maximum is 0.
STOPPED = 10 * 365 * 86_400.0
#: Starts of a rate that are called in advance: those of `CALLED_SECONDS`, and at least `CALLED_LEAST`.
CALLED_SECONDS, CALLED_LEAST = 0.25, 2


def shards_of(max: int) -> int:
    return min(MAX_SHARDS, max // PER_SHARD) if max >= SHARDED_FROM else 1


def share(max: int, shards: int, shard: int) -> int:
    """The part of the maximum that one shard has: the parts add up to the maximum."""
    if shard >= shards:
        return 0
    return max // shards + (shard < max % shards)


def home_shard(run_id: str, path: str, shards: int) -> int:
    """The shard where a step first looks for a free slot, and where it waits."""
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
    if max == 0:
        return Pace(per, -STOPPED)
    early = max // 20
    gap = per / (max - early)
    return Pace(gap, (early + burst) * gap)


def called_ahead(gap: float) -> int:
    return int(min(1000, max(CALLED_LEAST, CALLED_SECONDS / gap)))


def why_full(max: int, per: float | None, gap: float | None, seconds: float) -> str:
    """`gap`, of a rate: seconds between two starts. `seconds`: until the next one."""
    if max == 0:
        return "an operator has set it to 0, so nothing starts"
    if per is None or gap is None:
        return f"all {max} are in use"
    return f"it allows {max} starts per {per:g} s, one every {gap:.3g} s, and the next one in {seconds:.3g} s"
