"""Actions on many runs, as the dashboard stores them: the order, and the outcome for each run. They outlive the process
that executes them: another one takes over.

No outcome is lost and none comes twice, because of four rules:

1. The process that executes an action has its token. Every transaction compares it: those of this module, and with
   `holds` those of the verb itself. Who takes over increments it, so nothing of the process before is committed later.
2. Before the verb is applied to a run, the run and the last entry of its history are stored as `doing`.
3. The transaction of the outcome clears `doing`.
4. Who takes over and finds `doing` asks the history of that run: if it has an entry of the verb after the stored one,
   the verb was applied and only its outcome is missing. Because of 1, there will be no such entry later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rival_client.db.locks import newest_entry
from rival_client.db.log_tables import history
from rival_client.db.operator_tables import bulk_outcomes, bulks
from rival_client.db.run_tables import runs
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries

#: Bulk actions that have ended and are kept, with their outcomes.
KEPT = 100
#: Seconds without an outcome after which the process that executes an action counts as ended.
SILENT = 30.0
#: Columns that a list does not need: with many runs they are large.
_LARGE = ("runs", "given", "commands", "doing")
#: Verb -> the entries that say that it was applied to a run.
_ENTRIES = {
    "retry": (entries.RETRY_RUN,),
    "rewind": (entries.REWIND_RUN,),
    "cancel": (entries.CANCELLING, entries.CANCELLED),
    "pause": (entries.PAUSED,),
    "resume": (entries.RESUMED,),
    "skip": (entries.SKIP,),
    "set_result": (entries.SET_RESULT,),
}
#: Verbs whose entry names the step.
_OF_STEPS = ("rewind", "skip", "set_result")

# -- executing -------------------------------------------------------------------------------------------


def begin_bulk(connection: Connection, bulk_id: str, verb: str, by: str, **about: Any) -> int:
    """Returns the token. Deletes the oldest ones, with their outcomes. `about`: `runs`, `total`, `given`, `commands`,
    `preview`."""
    row = {"id": bulk_id, "verb": verb, "actor": by, "state": "running", "ended": 0, "refused": 0, **about}
    connection.execute(insert(bulks).values(started_at=now(), beat_at=now(), token=1, **row))
    ended = select(bulks.c.id).where(bulks.c.state != "running")
    newest = ended.order_by(bulks.c.started_at.desc(), bulks.c.id.desc())
    old = connection.execute(newest.offset(KEPT - 1).limit(KEPT)).scalars().all()
    connection.execute(delete(bulk_outcomes).where(bulk_outcomes.c.bulk_id.in_(old)))
    connection.execute(delete(bulks).where(bulks.c.id.in_(old)))
    return 1


def take_over(connection: Connection) -> list[str]:
    """The actions whose process counts as ended: the caller executes them from now on."""
    silent = (bulks.c.state == "running", bulks.c.token > 0, bulks.c.beat_at < after(-SILENT))
    # A process that hangs in the middle of a transaction has locked its action: the others must not wait for it.
    free = select(bulks.c.id).where(*silent).with_for_update(skip_locked=True)
    found = list(connection.execute(free).scalars())
    connection.execute(update(bulks).where(bulks.c.id.in_(found)).values(token=bulks.c.token + 1, beat_at=now()))
    return found


def hand_back(connection: Connection, bulk_id: str, token: int) -> None:
    """Another process may take over at once."""
    connection.execute(update(bulks).where(*_held(bulk_id, token)).values(beat_at=after(-2 * SILENT)))


def holds(connection: Connection, bulk_id: str, token: int) -> bool:
    """Whether the token is the current one. It stays so until the transaction ends."""
    held = select(bulks.c.id).where(*_held(bulk_id, token)).with_for_update(read=True)
    return connection.execute(held).first() is not None


def begin_run(connection: Connection, bulk_id: str, token: int, run_id: str) -> bool:
    """The next run is this one. False: the action is to stop, or another process executes it."""
    run = connection.execute(select(runs.c.workflow, runs.c.status).where(runs.c.id == run_id)).first()
    known = {"workflow": run.workflow, "status": run.status} if run else {"workflow": "", "status": ""}
    doing = {"run_id": run_id, "entry": newest_entry(connection, run_id), **known}
    begun = update(bulks).where(*_held(bulk_id, token), bulks.c.stopping.is_(False)).values(doing=doing, beat_at=now())
    return connection.execute(begun).rowcount == 1


def add_outcome(connection: Connection, bulk_id: str, token: int, number: int, outcome: Mapping[str, Any]) -> bool:
    """`outcome`: `run_id`, `workflow`, `status`, `why`, `opened`, `runs_again`. False: another process executes it."""
    refused = bulks.c.refused + int(outcome["why"] is not None)
    counted = {"ended": number, "refused": refused, "beat_at": now(), "doing": None}
    if connection.execute(update(bulks).where(*_held(bulk_id, token)).values(**counted)).rowcount == 0:
        return False
    connection.execute(insert(bulk_outcomes).values(bulk_id=bulk_id, number=number, **outcome))
    return True


def end_bulk(connection: Connection, bulk_id: str, token: int, state: str, error: str | None) -> bool:
    """False: another process executes it, or it has ended."""
    how = {"state": state, "error": error, "ended_at": now()}
    return connection.execute(update(bulks).where(*_held(bulk_id, token)).values(**how)).rowcount == 1


def stop_bulk(connection: Connection, bulk_id: str) -> None:
    """After the run that it is at. One that no process executes has stopped then."""
    own = (bulks.c.id == bulk_id, bulks.c.state == "running")
    ended = {"state": "stopped", "ended_at": now(), "token": bulks.c.token + 1}
    connection.execute(update(bulks).where(*own, bulks.c.beat_at < after(-SILENT)).values(**ended))
    connection.execute(update(bulks).where(*own).values(stopping=True))


def _held(bulk_id: str, token: int) -> tuple[Any, ...]:
    return bulks.c.id == bulk_id, bulks.c.token == token, bulks.c.state == "running"


def applied(connection: Connection, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The detail of the entry that says that the verb was applied to the run that was being changed. None: it was
    not."""
    doing, verb = row["doing"], row["verb"]
    after_it = (history.c.run_id == doing["run_id"], history.c.id > doing["entry"])
    of_verb = (history.c.what.in_(_ENTRIES[verb]), history.c.actor == row["actor"])
    place = history.c.path == row["given"]["step"] if verb in _OF_STEPS else history.c.path.is_(None)
    found = select(history.c.detail).where(*after_it, *of_verb, place).order_by(history.c.id).limit(1)
    entry = connection.execute(found).first()
    return None if entry is None else entry.detail or {}


# -- reading ---------------------------------------------------------------------------------------------


def read_bulk(connection: Connection, bulk_id: str) -> dict[str, Any] | None:
    """With `is_silent`: whether its process counts as ended."""
    silent = (bulks.c.beat_at < after(-SILENT)).label("is_silent")
    found = connection.execute(select(bulks, silent).where(bulks.c.id == bulk_id)).mappings().one_or_none()
    return None if found is None else {**found}


def newest_bulks(connection: Connection, limit: int = KEPT) -> list[dict[str, Any]]:
    """The newest first, without what is large."""
    silent = (bulks.c.beat_at < after(-SILENT)).label("is_silent")
    columns = [column for column in bulks.columns if column.name not in _LARGE]
    newest = select(*columns, silent).order_by(bulks.c.started_at.desc(), bulks.c.id.desc())
    return [{**row} for row in connection.execute(newest.limit(limit)).mappings()]


def read_outcomes(connection: Connection, bulk_id: str, limit: int) -> list[dict[str, Any]]:
    """The first ones, in the order in which they came."""
    columns = [column for column in bulk_outcomes.columns if column.name not in ("bulk_id", "number")]
    found = select(*columns).where(bulk_outcomes.c.bulk_id == bulk_id).order_by(bulk_outcomes.c.number)
    return [{**row} for row in connection.execute(found.limit(limit)).mappings()]


def runs_with_outcome(connection: Connection, bulk_id: str) -> set[str]:
    return set(connection.execute(select(bulk_outcomes.c.run_id).where(bulk_outcomes.c.bulk_id == bulk_id)).scalars())
