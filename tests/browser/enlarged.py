"""Runs of ten thousand steps, made from small ones: the rows of one item or checkpoint are repeated. Running them here
would take minutes, and the pages only read rows. And a run whose timeline has more rows than a page draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Table, insert, select

from rival_client import Rival
from rival_client.db.log_tables import history
from rival_client.db.run_tables import runs, steps
from rival_workers import create_workflow, for_each, step
from rival_workers.definition.registry import Registry

MANY = 10_000
Row = dict[str, Any]
PathOf = Callable[[re.Match[str], int], str]

#: Items of the run `many-places`, and the steps of each.
ITEMS, STEPS = 8, 20


def parts(input: None) -> list[int]:
    return [*range(ITEMS)]


def work(item: int) -> int:
    return item


def register(registry: Registry) -> None:
    each = for_each("parts", items=parts, do=[step(work, name=f"work-{one:02}") for one in range(STEPS)], concurrency=4)
    create_workflow("many_places", description="Many steps for each item").steps([each]).register(registry)


def enlarge(rival: Rival) -> None:
    """`big-items` has the items of `etl-60` and `big-flow` the checkpoints of `onboarding-done`, again and again;
    `many-places` has its own.
    """
    _copy(rival, "etl-60", "big-items", r"accounts\[5\](?P<rest>/.*)?$", range(60, MANY), _item)
    _copy(rival, "onboarding-done", "big-flow", r"onboarding/greet~2$", range(4, MANY + 1), _checkpoint)
    rival.run("many_places", run_id="many-places")
    rival.wait("many-places", timeout=300)


def _item(found: re.Match[str], number: int) -> str:
    return f"accounts[{number}]{found['rest'] or ''}"


def _checkpoint(_: re.Match[str], number: int) -> str:
    return f"onboarding/greet~{number}"


def _copy(rival: Rival, source: str, target: str, repeated: str, numbers: range, path_of: PathOf) -> None:
    with rival.database.transaction() as connection:
        for table in (runs, steps, history):
            key = table.c.id if table is runs else table.c.run_id
            read = connection.execute(select(table).where(key == source)).mappings()
            rows = [row for one in read for row in _renamed(table, dict(one), target)]
            if table is not runs:
                rows += [made for row in rows for made in _repeated(row, repeated, numbers, path_of)]
            for first in range(0, len(rows), 500):
                connection.execute(insert(table), rows[first : first + 500])


def _renamed(table: Table, row: Row, target: str) -> Iterator[Row]:
    if table is history:
        row.pop("id")
    if row.get("total"):
        row["total"] = row["opened"] = MANY
    if row.get("what") == "fanned_out":
        row["detail"] = {**row["detail"], "items": [*range(MANY)]}
    yield {**row, ("id" if table is runs else "run_id"): target}


def _repeated(row: Row, repeated: str, numbers: range, path_of: PathOf) -> Iterator[Row]:
    found = re.match(repeated, row["path"] or "")
    if found:
        yield from ({**row, "path": path_of(found, number)} for number in numbers)
