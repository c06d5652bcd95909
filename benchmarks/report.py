"""From measurements to what people read: a table with spreads and ratios, and a file per benchmark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.catalogue import FIGURES, Figure
from benchmarks.lines import Measurement

NONE = "-"

#: By (system, name).
Scores = Mapping[tuple[str, str], Measurement]


def scores_of(measurements: Iterable[Measurement]) -> dict[tuple[str, str], Measurement]:
    """All repetitions of a system's best configuration, per discipline."""
    variants: dict[tuple[str, str], dict[str, Measurement]] = defaultdict(dict)
    for one in measurements:
        found = variants[one.system, one.name]
        before = found.get(one.configuration)
        values = (*before.values, *one.values) if before else one.values
        found[one.configuration] = Measurement(one.system, one.name, values, one.note, one.configuration)
    return {key: _best(found) for key, found in variants.items()}


def _best(variants: Mapping[str, Measurement]) -> Measurement:
    """The best configuration; its note says what the others reached."""
    medians = {name: one.median for name, one in variants.items() if one.median is not None}
    if len(medians) < 2:
        return next(iter(variants.values()))
    more = {figure.name: figure.more for figure in FIGURES}[next(iter(variants.values())).name]
    chosen = variants[(max if more else min)(medians, key=medians.__getitem__)]
    note = ", ".join(f"{name}: {value:.4g}" for name, value in medians.items())
    return Measurement(chosen.system, chosen.name, chosen.values, note, chosen.configuration)


def record(scores: Scores, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept: the conditions, and of each measurement the median, the spread, the repetitions and its note."""
    measured = [
        {
            "system": one.system,
            "name": one.name,
            "median": one.median,
            "spread": one.spread,
            "p99": one.p99,
            "values": [float(f"{value:.5g}") for value in one.values],
            "note": one.note,
        }
        for one in scores.values()
    ]
    return {"about": dict(about), "measurements": measured}


def write(path: Path, scores: Scores, about: Mapping[str, Any]) -> None:
    """The record of one benchmark."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record(scores, about), indent=1) + "\n")


def table(scores: Scores, systems: Sequence[str]) -> str:
    """For a terminal: medians with their spread, and the first system divided by each of the others."""
    first, *others = systems
    head = ["", *systems, *(f"{first}/{other}" for other in others), "better"]
    known = [figure for figure in FIGURES if any((system, figure.name) in scores for system in systems)]
    rows = [_row(scores, figure, systems) for figure in known]
    return "\n".join([*_aligned([head, *rows]), "", *_notes(scores)])


def cell(one: Measurement | None) -> str:
    """`median (smallest..largest)`; with its p99 if there is one."""
    if one is None or one.median is None or one.spread is None:
        return NONE
    middle = _number(one.median)
    tail = "" if one.p99 is None else f", p99 {_number(one.p99)}"
    return middle if len(one.values) == 1 else f"{middle} ({_number(one.spread[0])}..{_number(one.spread[1])}{tail})"


def ratio(scores: Scores, name: str, system: str, other: str) -> str:
    """The median of one divided by the median of the other."""
    ours, theirs = scores.get((system, name)), scores.get((other, name))
    if ours is None or theirs is None or ours.median is None or not theirs.median:
        return NONE
    return f"{ours.median / theirs.median:.2f} x"


def _row(scores: Scores, figure: Figure, systems: Sequence[str]) -> list[str]:
    first, *others = systems
    cells = [cell(scores.get((system, figure.name))) for system in systems]
    ratios = [ratio(scores, figure.name, first, other) for other in others]
    return [figure.words, *cells, *ratios, "more" if figure.more else "less"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _notes(scores: Scores) -> list[str]:
    return [f"{one.system} {one.name}: {one.note}" for one in scores.values() if one.note]
