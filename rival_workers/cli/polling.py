"""Reads the log or the history of a run until the run has ended."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

from rival_client.api.client import Rival
from rival_client.model.run_entries import HistoryEntry, LogEntry
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.sql.reads.run_reads import read_status

#: Seconds between two reads.
POLL_INTERVAL = 0.5
#: An entry can become visible after one with a higher id: every so many polls, entries this young are read again.
_LATE, _LOOK_BACK = dt.timedelta(seconds=10), 4


def read_logs(
    rival: Rival, run_id: str, step: str | None = None, level: str = "debug", after: int | None = None
) -> Iterator[LogEntry]:
    """All entries that exist now, page by page."""
    while page := rival.logs(run_id, step, level, after):
        yield from page
        after = page[-1].id


def follow_logs(rival: Rival, run_id: str, step: str | None, level: str) -> Iterator[LogEntry]:
    """All entries until the run has ended. The status is read before the log, so that the last entries are included."""
    after = None
    while True:
        ended = _has_ended(rival, run_id)
        for entry in read_logs(rival, run_id, step, level, after):
            after = entry.id
            yield entry
        if ended:
            return
        time.sleep(POLL_INTERVAL)


def _has_ended(rival: Rival, run_id: str) -> bool:
    with rival.database.autocommit() as connection:
        found = read_status(connection, run_id)
    return found is None or found[1] in RUN_TERMINAL


def follow_history(rival: Rival, run_id: str, *, slim: bool = False) -> Iterator[HistoryEntry]:
    """All entries until the run has ended. The status is read before them, so that the last entries are included."""
    seen: dict[int, dt.datetime] = {}
    polls = 0
    while True:
        ended = _has_ended(rival, run_id)
        looks_back = ended or polls % _LOOK_BACK == 0
        after = _floor(seen) if looks_back else max(seen, default=None)
        for entry in rival.history(run_id, after=after, slim=slim):
            if entry.id not in seen:
                seen[entry.id] = entry.at
                yield entry
        if ended:
            return
        polls += 1
        time.sleep(POLL_INTERVAL)


def _floor(seen: dict[int, dt.datetime]) -> int | None:
    """The newest entry that no entry can precede any more; what is below it is dropped."""
    newest = max(seen.values(), default=None)
    if newest is None:
        return None
    floor = max((one for one, at in seen.items() if at < newest - _LATE), default=None)
    for one in [one for one in seen if floor is not None and one < floor]:
        del seen[one]
    return floor
