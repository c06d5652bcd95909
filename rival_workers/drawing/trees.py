"""An outline as a tree of lines, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rival_workers.drawing.outline import Entry


def tree(entries: Sequence[Entry], margin: str = "") -> Iterator[tuple[str, Entry]]:
    """Each entry with what is to be drawn before it."""
    for position, entry in enumerate(entries, 1):
        is_last = position == len(entries)
        yield margin + ("└─ " if is_last else "├─ "), entry
        yield from tree(entry.inner, margin + ("   " if is_last else "│  "))


def lines(entries: Sequence[Entry]) -> list[str]:
    return [f"{drawn}{entry.name}  {entry.remark}".rstrip() for drawn, entry in tree(entries)]
