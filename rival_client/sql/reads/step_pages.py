"""Steps of a run page by page: the items of a for_each, the iterations of a loop, the checkpoints of a flow, the steps
below one of them. A page reads what it shows, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Text,
    and_,
    cast,
    func,
    or_,
    select,
    true,
    values,
)
from sqlalchemy import column as plain_column

from rival_client.db.run_tables import steps
from rival_client.model.kinds import REPLACEABLE
from rival_client.model.statuses import COMPLETED
from rival_client.model.step_records import Step
from rival_client.sql.reads.run_records import step_of

#: Characters of an item or a result.
BEGINNING = 2000
#: Steps of one iteration of a loop that are read to find its status.
_OF_ITERATION = 50
_HEAVY = ("result", "item")
_COLUMNS = (
    *(column for column in steps.columns if column.name not in _HEAVY),
    *(func.substr(cast(steps.c[name], Text), 1, BEGINNING).label(f"{name}_text") for name in _HEAVY),
)


@dataclass(frozen=True)
class StepLine:
    """A step with the beginning of its item and of its result, as JSON text."""

    step: Step
    item: str | None
    result: str | None


def items(connection: Connection, run_id: str, path: str, start: int, limit: int) -> list[StepLine]:
    """Items by number: exact keys, in numeric order without a sort."""
    keys = [f"{path}[{number}]" for number in range(start, start + limit)]
    found = {one.step.path: one for one in _lines(connection, steps.c.run_id == run_id, steps.c.path.in_(keys))}
    return [found[key] for key in keys if key in found]


def items_in_status(
    connection: Connection, run_id: str, path: str, kind: str, status: str, start: int, limit: int
) -> list[StepLine]:
    """The same for one status: looks at all items from that number on."""
    number = _number(connection, f"{path}[")
    wanted = (steps.c.run_id == run_id, begins(f"{path}["), steps.c.kind == kind, steps.c.status == status)
    return _lines(connection, *wanted, number >= start, order=(number,), limit=limit)


def below(connection: Connection, run_id: str, path: str, behind: str | None, limit: int) -> list[StepLine]:
    """Everything below a step, by path."""
    wanted = [steps.c.run_id == run_id, begins(f"{path}/")]
    wanted += [steps.c.path > behind] if behind is not None else []
    return _lines(connection, *wanted, order=(steps.c.path,), limit=limit)


def checkpoints(
    connection: Connection, run_id: str, path: str, status: str | None, start: int, limit: int
) -> list[StepLine]:
    """Checkpoints of a flow in the order of their beginning."""
    wanted = [steps.c.run_id == run_id, begins(f"{path}/")]
    wanted += [steps.c.status == status] if status is not None else []
    return _lines(connection, *wanted, order=(steps.c.created_at, steps.c.path), limit=limit, offset=start)


def iterations(connection: Connection, run_id: str, path: str, start: int, limit: int) -> dict[int, list[Step]]:
    """Number -> the steps of that iteration of a loop."""
    found: dict[int, list[Step]] = {}
    for number in range(start, start + limit):
        inside = or_(begins(f"{path}[{number}]/"), begins(f"{path}[{number}]!"))
        lines = _lines(connection, steps.c.run_id == run_id, inside, limit=_OF_ITERATION)
        if not lines:
            break
        found[number] = [one.step for one in lines]
    return found


def iteration_count(connection: Connection, run_id: str, path: str) -> int:
    """They are numbered from 0, and the last one has a row as soon as it begins."""
    last = func.max(_number(connection, f"{path}["))
    found = connection.scalar(select(last).where(steps.c.run_id == run_id, begins(f"{path}[")))
    return 0 if found is None else int(found) + 1


def step_results(connection: Connection, run_id: str, limit: int) -> dict[str, Any]:
    """Path -> result of the completed steps that are in no item and no iteration."""
    its = (steps.c.run_id == run_id, steps.c.kind.in_(REPLACEABLE), steps.c.status == COMPLETED)
    plain = select(steps.c.path, steps.c.result).where(*its, steps.c.path.not_like("%[%"))
    found = connection.execute(plain.order_by(steps.c.created_at, steps.c.path).limit(limit))
    return {row.path: row.result for row in found}


def counts(connection: Connection, run_id: str, beginning: str, kind: str | None = None) -> dict[str, int]:
    """Status -> how many rows begin like this."""
    wanted = [steps.c.run_id == run_id, begins(beginning), *([steps.c.kind == kind] if kind else [])]
    statement = select(steps.c.status, func.count().label("n")).where(*wanted).group_by(steps.c.status)
    return {row.status: row.n for row in connection.execute(statement)}


def begins(beginning: str) -> ColumnElement[bool]:
    """Paths compare byte by byte, so this is a range of the key."""
    end = beginning[:-1] + chr(ord(beginning[-1]) + 1)
    return and_(steps.c.path >= beginning, steps.c.path < end)


def _number(connection: Connection, beginning: str) -> ColumnElement[int]:
    position = func.strpos if connection.dialect.name == "postgresql" else func.instr
    rest = func.substr(steps.c.path, len(beginning) + 1)
    return cast(func.substr(rest, 1, position(rest, "]") - 1), BigInteger)


def _lines(
    connection: Connection,
    *wanted: ColumnElement[bool],
    order: Sequence[ColumnElement[Any]] = (),
    limit: int | None = None,
    offset: int = 0,
) -> list[StepLine]:
    statement = select(*_COLUMNS).where(*wanted).order_by(*order).limit(limit).offset(offset)
    return [_line(row) for row in connection.execute(statement).mappings()]


def _line(row: Any) -> StepLine:
    texts = {f"{name}_text" for name in _HEAVY}
    fields = {name: value for name, value in row.items() if name not in texts}
    return StepLine(step_of(fields), row["item_text"], row["result_text"])


def progress_of(connection: Connection, run_ids: Sequence[str], limit: int) -> Iterator[RowMapping]:
    """Open steps that count items or report progress: of each run the first ones by path."""
    if connection.dialect.name != "postgresql":
        for run_id in run_ids:
            yield from connection.execute(_progress_of_run(run_id, limit)).mappings()
    elif run_ids:
        wanted = values(plain_column("id", Text), name="wanted").data([(one,) for one in run_ids])
        each = _progress_of_run(wanted.c.id, limit).correlate(wanted).lateral()
        yield from connection.execute(select(each).select_from(wanted.join(each, true()))).mappings()


def _progress_of_run(run_id: Any, limit: int) -> Select[Any]:
    counts = or_(steps.c.total.is_not(None), steps.c.progress.is_not(None))
    wanted = (steps.c.run_id == run_id, steps.c.completed_at.is_(None), counts)
    names = ("run_id", "path", "total", "opened", "remaining", "progress", "heartbeat_at")
    return select(*(steps.c[name] for name in names)).where(*wanted).order_by(steps.c.path).limit(limit)
