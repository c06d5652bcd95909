"""Starts that find their run id taken. Starting the same thing twice is fine; starting another thing under the same id
is not, and then nothing stays inserted. The statements are generators (see `rival_client.sql.shared_starts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Text, cast, delete, select

from rival_client.db.run_tables import labels, runs
from rival_client.errors import RunConflict
from rival_client.model import statuses
from rival_client.model.json_match import same
from rival_client.model.payload import load
from rival_client.model.starts.starts import Start
from rival_client.sql.shared_starts import Statements


def refuse_conflicts(start: Start, created: Collection[str]) -> Statements[None]:
    """Check the runs that were there already, where `created` are new. RunConflict: one of them is another; then the
    new ones are deleted again, because the transaction can be the caller's, who may commit it."""
    if not (missing := start.missing(created)):
        return
    # As text: a producer's own connection may have loaders of its own for JSON (Django's has).
    found = yield select(runs.c.id, runs.c.workflow, cast(runs.c.input, Text)).where(runs.c.id.in_(missing))
    for run_id, its_workflow, its_input in found:
        why = None
        if its_workflow != start.workflow.name:
            why = f"of workflow {its_workflow!r}, not {start.workflow.name!r}"
        elif not same(load(its_input), load(start.inputs[run_id])):
            why = "with another input"
        if why is not None:
            yield from take_back([created])
            raise RunConflict(run_id, why)


def take_back(inserted: Iterable[Collection[str]]) -> Statements[None]:
    """Delete runs that this transaction has inserted, which no other transaction has seen. A savepoint around each
    insert would do the same, for two more round trips whenever there is no conflict."""
    for run_ids in inserted:
        if run_ids:
            yield delete(labels).where(labels.c.run_id.in_(run_ids))
            is_new = (runs.c.token == 0, runs.c.status == statuses.PENDING)
            yield delete(runs).where(runs.c.id.in_(run_ids), *is_new)
