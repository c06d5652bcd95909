"""`rival tree`: a run with its ancestors and child runs, as a tree of lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import click

from rival_client.model.run_node import RunNode
from rival_client.sql.reads.run_family import DEPTH, WIDTH
from rival_workers.cli.completion import complete_runs
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import seconds_text, status_text
from rival_workers.cli.display.output import console, json_option, print_json, table


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--below", is_flag=True, help="Only RUN and its child runs, without its ancestors.")
@click.option("--depth", type=click.IntRange(min=0), default=DEPTH, help="At most this many levels.")
@click.option("--width", type=click.IntRange(min=1), default=WIDTH, help="At most this many child runs of each run.")
@json_option
def tree(run_id: str, below: bool, depth: int, width: int, as_json: bool) -> None:
    """Show the tree of runs that RUN belongs to, each with the step that started it."""
    with open_rival() as rival:
        root = rival.tree(run_id, below=below, depth=depth, width=width)
    if as_json:
        print_json(_as_json(root))
    else:
        console().print(table(("run", "workflow", "status", "took", "started by", ""), _rows(root, run_id)))


def _as_json(node: RunNode) -> dict[str, Any]:
    fields = {one.name: getattr(node, one.name) for one in dataclasses.fields(node)}
    computed = {"is_awaited": node.is_awaited, "duration": node.duration}
    return fields | computed | {"children": [_as_json(child) for child in node.children]}


def _rows(node: RunNode, shown_for: str, lead: str = "", branch: str = "") -> Iterator[tuple[Any, ...]]:
    """A line for the run, the lines of its children, and a line that counts the children left out."""
    yield lead + branch + node.run_id, *_cells(node), _remark(node, shown_for)
    lead += {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    for child in node.children:
        is_last = child is node.children[-1] and not node.more
        yield from _rows(child, shown_for, lead, "└─ " if is_last else "├─ ")
    if node.more:
        yield f"{lead}└─ {_more(node.more)}", "", "", "", "", ""


def _cells(node: RunNode) -> tuple[Any, ...]:
    return node.workflow, status_text(node.status), seconds_text(node.duration), node.parent_path or ""


def _remark(node: RunNode, shown_for: str) -> str:
    remarks = [
        "this run" if node.run_id == shown_for else "",
        "not awaited" if node.is_awaited is False else "",
        f"at {node.failed_step}" if node.failed_step else "",
        "paused" if node.paused_at is not None and node.completed_at is None else "",
    ]
    return ", ".join(filter(None, remarks))


def _more(counts: Mapping[str, int]) -> str:
    by_status = ", ".join(f"{number:,} {status}" for status, number in sorted(counts.items()))
    return f"… {sum(counts.values()):,} more ({by_status})"
