"""Guards of statements that change a status: conditions that the transition table gives for a verb."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from rival_client.db.run_tables import runs, steps
from rival_client.model.transitions import run_sources, step_sources


def step_can(verb: str) -> ColumnElement[bool]:
    """The step is in a status from which the verb may start. The statement also compares the token."""
    return steps.c.status.in_(sorted(step_sources(verb)))


def run_can(verb: str) -> ColumnElement[bool]:
    """The run is in a status from which the verb may start."""
    return runs.c.status.in_(sorted(run_sources(verb)))
