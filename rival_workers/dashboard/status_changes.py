"""Computes which statuses a history entry changes, as rows for the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rival_client.model.rebuild import status_changes
from rival_client.model.run_entries import HistoryEntry
from rival_client.sql.reads.history_columns import ITEM_COUNT
from rival_workers.dashboard.values import milliseconds

#: Fields of a detail that a change has.
_SMALL = ("attempt", "delay", "kind", "seconds", "topic", "key", "run_id", "workflow", "error", "reason", ITEM_COUNT)
#: Entries of a history that are read at once.
MOST = 50_000


def change_rows(entry: HistoryEntry, hide: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """[id, milliseconds, step, entry, status of the step after it, detail] for each step that the entry changes."""
    detail = {name: entry.detail[name] for name in _SMALL if name in entry.detail}
    head = (entry.id, milliseconds(entry.at))
    changed: Sequence[tuple[str | None, str | None]] = changed_statuses(entry) or [(entry.path, None)]
    for path, status in changed:
        yield [*head, path, entry.what, status, hide(detail)]


def changed_statuses(entry: HistoryEntry) -> list[tuple[str, str]]:
    """The statuses that an entry changes. The entry has no values: its items are known by their number."""
    if ITEM_COUNT in entry.detail:
        entry = replace(entry, detail={**entry.detail, "items": range(entry.detail[ITEM_COUNT])})
    return status_changes(entry)
