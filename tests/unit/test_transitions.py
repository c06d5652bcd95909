"""The table of transitions says the same as the tables' constraints and as the store's operations."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import CheckConstraint, Table

from rival_client.db.run_tables import runs, steps
from rival_client.model.statuses import RUN_STATUSES, RUN_TERMINAL, STEP_STATUSES, STEP_TERMINAL
from rival_client.model.transitions import (
    OPEN,
    OPERATORS,
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    Transition,
    run_sources,
    step_sources,
)

TABLES = [
    (STEP_TRANSITIONS, STEP_STATUSES, STEP_TERMINAL, steps),
    (RUN_TRANSITIONS, RUN_STATUSES, RUN_TERMINAL, runs),
]


@pytest.mark.parametrize(("table", "statuses", "terminal", "rows"), TABLES, ids=["steps", "runs"])
def test_sources_and_targets_are_statuses_that_the_table_allows(
    table: dict[str, Transition], statuses: tuple[str, ...], terminal: tuple[str, ...], rows: object
) -> None:
    for transition in table.values():
        assert transition.sources <= set(statuses)
        assert transition.targets <= set(statuses)


@pytest.mark.parametrize(("table", "statuses", "terminal", "rows"), TABLES, ids=["steps", "runs"])
def test_only_an_operator_leads_out_of_a_terminal_status(
    table: dict[str, Transition], statuses: tuple[str, ...], terminal: tuple[str, ...], rows: object
) -> None:
    for transition in table.values():
        assert not transition.sources & set(terminal) or transition.verb in OPERATORS, transition.verb


@pytest.mark.parametrize(("table", "statuses", "terminal", "rows"), TABLES, ids=["steps", "runs"])
def test_every_open_status_can_be_cancelled_and_every_terminal_one_reached(
    table: dict[str, Transition], statuses: tuple[str, ...], terminal: tuple[str, ...], rows: object
) -> None:
    assert table["cancel_run"].sources == set(statuses) - set(terminal)
    reachable = set().union(*(transition.targets for transition in table.values()))
    assert set(terminal) <= reachable


@pytest.mark.parametrize(("table", "statuses", "terminal", "rows"), TABLES, ids=["steps", "runs"])
def test_every_verb_is_guarded_by_a_token(
    table: dict[str, Transition], statuses: tuple[str, ...], terminal: tuple[str, ...], rows: object
) -> None:
    # A composite moves within the finish of a step below it, under that step's token. Pausing changes no status, and
    # the deadline of a run and a cancel end all that is open of it, under the exclusive lock of the run.
    tokens = {"execution_token", "timeout_token", "token", "child", "completion_token"}
    for verb, transition in table.items():
        assert transition.verb == verb
        changes_status = transition.sources != transition.targets and verb not in ("expire_run", "begin_cancel")
        assert transition.guard in tokens or (transition.guard, changes_status) == ("lock", False)


@pytest.mark.parametrize(
    ("rows", "statuses", "terminal"), [(steps, STEP_STATUSES, STEP_TERMINAL), (runs, RUN_STATUSES, RUN_TERMINAL)]
)
def test_the_tables_constraint_lists_exactly_the_statuses(
    rows: Table, statuses: tuple[str, ...], terminal: tuple[str, ...]
) -> None:
    [text] = [str(c.sqltext) for c in rows.constraints if isinstance(c, CheckConstraint)]
    if_open, if_ended = text.split(" ELSE ")
    listed = [set(re.findall(r"'(\w+)'", part.split("status IN (")[1].split(")")[0])) for part in (if_open, if_ended)]
    assert listed == [set(statuses) - set(terminal), set(terminal)]


def test_open_is_everything_that_is_not_terminal() -> None:
    assert set(OPEN.split()) == set(STEP_STATUSES) - set(STEP_TERMINAL)


def test_a_running_step_leaves_by_what_is_listed_here_and_by_nothing_else() -> None:
    verbs = {verb for verb in STEP_TRANSITIONS if "running" in step_sources(verb)}
    assert verbs == {
        "finish_step",
        "retry_step",
        "postpone_step",
        "queue_running",
        "fall_back",
        "time_out_fall_back",
        "time_out_finish",
        "time_out_retry",
        "take_over_step",
        "hand_back_step",
        "suspend_external_step",
        "suspend_step",
        "answer_step",
        "beat_step",
        "beat_external_step",
        "cancel_below",
        "cancel_run",
        "settle_step",
        "apply_policy",
    }
    assert run_sources("begin_run") == {"pending"}
