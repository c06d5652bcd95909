"""From measurements to what people read: `latest.json` with the agreed keys, a file with all details, a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lines import Measurement

SYSTEMS = ("rival", "dbos", "celery_chain")
#: Key in the file, words in the table, and whether more is better.
DISCIPLINES = (
    ("steps_per_s", "steps/s (n runs x 5 steps, 2 workers)", True),
    ("starts_per_s", "runs started/s, one by one", True),
    ("latency_10_steps_ms", "10-step run, idle system (ms)", False),
    ("wait_lag_ms", "commit to wait returning (ms)", False),
    ("retry_timer_error_ms", "timer error of a 1 s retry (ms)", False),
    ("takeover_s", "takeover after SIGKILL (s)", False),
    ("commits_per_step", "commits per step", False),
)
#: What only Rival has.
BIG_RUNS = (
    ("for_each_items_per_s", "for_each of no-op items: items/s", True),
    ("for_each_last_to_first", "its last quarter's speed to its first's", True),
    ("for_each_memory_mb", "its fleet's growth in memory (MB)", False),
    ("long_run_ms_per_step/first", "1,000-step run: ms per step, first tenth", False),
    ("long_run_ms_per_step/last", "1,000-step run: ms per step, last tenth", False),
    ("continuations_per_s", "a flow that continues: continuations per second", True),
    ("continuation_rows", "rows that these continuations leave (all tables)", False),
    ("checkpoints_per_s", "steps of one flow, one after the other, per second", True),
    ("sleep_error_ms", "a flow's sleep: how late it wakes (ms)", False),
    ("events_per_s", "runs woken by events, per second", True),
    ("steps_per_s_beside_sleeping/none", "steps/s with no sleeping runs", True),
    ("steps_per_s_beside_sleeping/many", "steps/s with a million (quick: 20,000)", True),
    ("sweep_ms_beside_new_sleeping/none", "a keeper's looks with no sleeping runs (ms)", False),
    ("sweep_ms_beside_new_sleeping/many", "a keeper's looks with a million that have just come (ms)", False),
    ("sweep_ms_beside_sleeping/none", "a keeper's looks with no sleeping runs, later (ms)", False),
    ("sweep_ms_beside_sleeping/many", "a keeper's looks with a million, later (ms)", False),
)
FINISHED = "steps_per_s_by_finished_runs"
FINISHED_SIZES = ("0", "100000", "1000000")
NONE = "-"

Scores = Mapping[tuple[str, str], Measurement]


def by_system(measurements: Iterable[Measurement]) -> dict[tuple[str, str], Measurement]:
    """Measurements by (system, name)."""
    return {(one.system, one.name): one for one in measurements}


def figure(scores: Scores, system: str, name: str) -> float | None:
    """The median, rounded to what can be trusted; None for "no such thing"."""
    found = scores.get((system, name))
    median = found.median if found else None
    return None if median is None else float(f"{median:.4g}")


def latest(scores: Scores) -> dict[str, Any]:
    """Exactly the keys that were agreed on."""
    result: dict[str, Any] = {
        name: {system: figure(scores, system, name) for system in SYSTEMS} for name, _, _ in DISCIPLINES
    }
    result["starts_per_s"]["rival_run_many"] = figure(scores, "rival_run_many", "starts_per_s")
    result["lease_s"] = figure(scores, "rival", "lease_s")
    result |= {name: figure(scores, "rival", name) for name, _, _ in BIG_RUNS}
    result[FINISHED] = {size: figure(scores, "rival", f"{FINISHED}/{size}") for size in FINISHED_SIZES}
    return result


def details(scores: Scores, about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything: the circumstances, and of each measurement the median, the spread, the repetitions and its note."""
    measured = [
        {
            "system": one.system,
            "name": one.name,
            "median": one.median,
            "spread": one.spread,
            "values": one.values,
            "note": one.note,
        }
        for one in scores.values()
    ]
    return {"about": dict(about), "measurements": measured}


def write(path: Path, scores: Scores, about: Mapping[str, Any]) -> None:
    """`path` and, beside it, the details."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(latest(scores), indent=2) + "\n")
    path.with_suffix(".details.json").write_text(json.dumps(details(scores, about), indent=2) + "\n")


def table(scores: Scores) -> str:
    """For a terminal: medians with their spread, and how Rival compares."""
    head = ["", *SYSTEMS, "rival/dbos", "rival/celery", "better"]
    rows = [_row(scores, name, words, more) for name, words, more in DISCIPLINES]
    rows.insert(
        2,
        [
            "runs started/s, run_many",
            cell(scores.get(("rival_run_many", "starts_per_s"))),
            *[NONE] * 4,
            "more",
        ],
    )
    rows += [
        [words, cell(scores.get(("rival", name))), *[NONE] * 4, "more" if more else "less"]
        for name, words, more in BIG_RUNS
        if ("rival", name) in scores
    ]
    rows += _finished_rows(scores)
    return "\n".join([*_aligned([head, *rows]), "", *_notes(scores)])


def cell(one: Measurement | None) -> str:
    """`median (smallest..largest)`."""
    if one is None or one.median is None or one.spread is None:
        return NONE
    middle = _number(one.median)
    return middle if len(one.values) == 1 else f"{middle} ({_number(one.spread[0])}..{_number(one.spread[1])})"


def ratio(scores: Scores, name: str, peer: str) -> str:
    """Rival's figure divided by the peer's."""
    ours, theirs = figure(scores, "rival", name), figure(scores, peer, name)
    return f"{ours / theirs:.2f} x" if ours is not None and theirs else NONE


def _row(scores: Scores, name: str, words: str, more: bool) -> list[str]:
    cells = [cell(scores.get((system, name))) for system in SYSTEMS]
    ratios = [ratio(scores, name, peer) for peer in SYSTEMS[1:]]
    return [words, *cells, *ratios, "more" if more else "less"]


def _finished_rows(scores: Scores) -> list[list[str]]:
    found = [scores.get(("rival", f"{FINISHED}/{size}")) for size in FINISHED_SIZES]
    return [
        [f"steps/s with {int(size):,} finished runs", cell(one), *[NONE] * 4, "more"]
        for size, one in zip(FINISHED_SIZES, found, strict=True)
        if one is not None
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _notes(scores: Scores) -> list[str]:
    return [f"{one.system} {one.name}: {one.note}" for one in scores.values() if one.note]
