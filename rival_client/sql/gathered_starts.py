"""The statements for starts that become part of one run: debounced starts and batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable, Text, and_, case, cast, func, insert, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.guards import run_can
from rival_client.db.log_tables import history
from rival_client.db.run_tables import GATHERS, labels, runs
from rival_client.db.types import Payload, after, later, now
from rival_client.errors import InvalidPayload
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.payload import Json, serialise
from rival_client.model.starts.gathering import Gathering
from rival_client.model.starts.starts import Start
from rival_client.model.timers import LEAD, NEVER_PUBLISHED
from rival_client.sql.shared_starts import Statements, json_value

#: A full run is closed, and another one begins: that can lose against other starts, but not for long.
_TRIES = 10


@dataclass(frozen=True)
class Gathered:
    """The run that a start has become part of."""

    run_id: str
    is_new: bool
    #: It begins at once: it has as many inputs as it may have.
    is_full: bool


def gather_run(start: Start, grace: float, limit: int, *, on_postgres: bool) -> Statements[Gathered]:
    """Become part of the pending run with this key, or start it. `limit`: bytes that an input may have."""
    gathering = start.options.gathering
    assert gathering is not None
    [(run_id, its_input)] = start.inputs.items()
    upsert = _upsert(start, gathering, run_id, its_input, grace, limit, on_postgres)
    for _ in range(_TRIES):
        rows = yield _with_entry(upsert, run_id) if on_postgres else upsert
        if rows:
            return (yield from _recorded(start, gathering, str(rows[0][0]), int(rows[0][1]), on_postgres))
        yield _close(start, gathering, grace)
    raise InvalidPayload(f"run {run_id!r}: its input does not fit into a run of {gathering.key!r}; try again")


def _upsert(
    start: Start, gathering: Gathering, run_id: str, its_input: Json, grace: float, limit: int, on_postgres: bool
) -> Any:
    dialect: Any = postgresql if on_postgres else sqlite
    options, given = start.options, start.all(grace)
    due = now() if gathering.most == 1 else after(gathering.wait)
    statement = dialect.insert(runs).values(
        id=run_id,
        workflow=start.workflow.name,
        version=start.workflow.version,
        status=statuses.PENDING,
        input=json_value(str(its_input)),
        created_at=now(),
        due_at=due,
        gather_key=None if gathering.most == 1 else gathering.key,
        gathered=1,
        queue=given["queue"],
        priority=given["priority"],
        **{name: None if given[name] is None else json_value(given[name]) for name in ("labels", "policies")},
        **_look(due, options.is_published(grace), grace),
    )
    fits = func.length(cast(runs.c.input, Text)) + len(its_input) <= limit
    changes = _changes(statement.excluded, gathering, options.is_published(grace), grace, on_postgres)
    return statement.on_conflict_do_update(
        index_elements=["workflow", "gather_key"],
        index_where=GATHERS,
        set_=changes,
        where=and_(run_can("gather_run"), fits) if gathering.collects else run_can("gather_run"),
    ).returning(runs.c.id, runs.c.gathered)


def _changes(new: Any, gathering: Gathering, published: bool, grace: float, on_postgres: bool) -> dict[str, Any]:
    """Of the pending run. Its token stays: the message of its first start comes too early, and is published again."""
    count = runs.c.gathered + 1
    due: Any = runs.c.due_at
    if gathering.postpones:
        least = func.least if on_postgres else func.min
        due = least(after(gathering.wait), later(runs.c.created_at, gathering.max_wait))
    is_full = None if gathering.most is None else count >= gathering.most
    due = due if is_full is None else case((is_full, now()), else_=due)
    values = {"input": _appended(new.input) if gathering.collects else new.input, "due_at": due, "gathered": count}
    if is_full is not None:
        values["gather_key"] = case((is_full, None), else_=runs.c.gather_key)
    return {**values, **_later_look(due, published, grace)}


def _later_look(due: Any, published: bool, grace: float) -> dict[str, Any]:
    """No message is published now. If its first start published none, in a transaction of its own, the keeper does."""
    keepers, look = _look(due, False, grace), _look(due, published, grace)
    has_none = runs.c.rings == NEVER_PUBLISHED
    return {name: case((has_none, keepers[name]), else_=look[name]) for name in look}


def _look(due: Any, published: bool, grace: float) -> dict[str, Any]:
    """When the keeper looks at the run."""
    return {"ring_at": later(due, grace if published else -LEAD), "rings": int(published) - 1}


def _appended(one: Any) -> Any:
    """Lists as text, so that each value stays as it was written."""
    before, after_it = cast(runs.c.input, Text), cast(one, Text)
    joined = func.substr(before, 1, func.length(before) - 1) + "," + func.substr(after_it, 2)
    return cast(joined, Payload)


def _close(start: Start, gathering: Gathering, grace: float) -> Executable:
    """No other start becomes part of the run: it begins now."""
    is_it = (runs.c.workflow == start.workflow.name, runs.c.gather_key == gathering.key, run_can("gather_run"))
    return update(runs).where(*is_it).values(gather_key=None, due_at=now(), ring_at=now(), rings=-1)


def _with_entry(upsert: Any, run_id: str) -> Executable:
    """With its history entry in the same statement: other starts with the key wait for the row until the commit, and so
    for each round trip before it."""
    found = upsert.cte("found")
    detail = cast(func.concat('{"n":', found.c.gathered, "}"), Payload)
    entry = select(found.c.id, literal(entries.GATHERED, Text), detail, now()).where(found.c.id != run_id)
    its_entry = insert(history).from_select(["run_id", "what", "detail", "at"], entry)
    return select(found.c.id, found.c.gathered).add_cte(its_entry.cte("entry"))


def _recorded(start: Start, gathering: Gathering, found: str, number: int, has_entry: bool) -> Statements[Gathered]:
    is_new = found == start.run_id
    for name, value in (start.options.labels or {}).items() if is_new else ():
        its_row = select(runs.c.id, literal(name, Text), literal(value, Text), runs.c.created_at)
        yield insert(labels).from_select(["run_id", "name", "value", "created_at"], its_row.where(runs.c.id == found))
    if not is_new and not has_entry:
        detail = json_value(serialise({"n": number}))
        yield insert(history).values(run_id=found, what=entries.GATHERED, detail=detail, at=now())
    return Gathered(found, is_new, gathering.most is not None and number >= gathering.most)
