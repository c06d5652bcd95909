"""One transition has one name: in the table of transitions, as the function or store method that applies it, in the
names of its `.sql` statements, in the history and as the outcome of an attempt.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from typing import Any

import pytest

from rival_client.model.history_entries import ENTRY_NAMES, RUN_ENTRIES, STEP_ENTRIES, EntryType
from rival_client.model.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS, Transition
from rival_workers.store.interface import Store
from rival_workers.store.postgres import FAST_PATHS
from rival_workers.store.postgres.statements import FastPath
from tests.architecture.test_imports import FILES, ROOT, name_of, tree_of

TRANSITIONS = {**RUN_TRANSITIONS, **STEP_TRANSITIONS}
SQL = [
    path
    for path in FILES
    if name_of(path).startswith(("rival_client/sql/", "rival_workers/store/")) and "migrations" not in path.parts
]
#: Transitions that another one's operation applies: by its decision, a timeout's token, or because no slot is free.
PART_OF = {
    "queue_run": "begin_run",
    "queue_step": "claim_step",
    "queue_running": "own_key",
    "unqueue_step": "unqueue",
    "fall_back": "finish_step",
    "time_out_finish": "finish_step",
    "expire_step": "finish_step",
    "time_out_retry": "retry_step",
    "time_out_fall_back": "finish_step",
}
#: The words of the history for verbs whose past is not regular.
PAST = {
    "begin": "started",
    "retry": "retried",
    "fall_back": "fell_back",
    "take_over": "taken_over",
    "hand_back": "handed_back",
    "wake": "woken",
    "cancel": "cancelled",
}
#: Transitions that are recorded by the entries of another one, since the status of the row changes in the same way.
RECORDED_AS = {
    "queue_running": {"queued"},
    "time_out_retry": {"timed_out", "retried"},
    "time_out_fall_back": {"timed_out", "fell_back"},
    "end_checkpoint": {"completed", "failed"},
    "close_step": {"completed", "skipped", "failed"},
    "end_fallback": {"completed", "skipped", "failed"},
    "retry_with": {"retried"},
    "cancel_run": {"cancelled"},
    "revive_step": {"retry_run", "rewind_run"},
}
#: Without an entry: a run is suspended while its only open step waits, which the entries of the step say.
FOLLOW_FROM_A_STEP = {"suspend_run", "wake_run"}
#: Entries that say more than the name of their transition: the reason of an end, or what the step waits for.
MORE_PRECISE = {
    "finish_step": {"revoked", "lost"},
    "time_out_finish": {"timed_out"},
    "suspend_step": {"continued"},
    "suspend_external_step": {"waits_for_external"},
    "answer_step": {"completed_externally", "failed_externally"},
    "cancel_below": {"given_up"},
    "begin_cancel": {"cancelling"},
    "settle_step": {"skip", "set_result"},
}


@cache
def operations() -> set[str]:
    """Functions and methods of the store and of the client's statements, without a leading underscore."""
    found = {
        node.name.lstrip("_") for path in SQL for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef)
    }
    return found | {name.removesuffix("s") for name in found}


@pytest.mark.parametrize("verb", TRANSITIONS)
def test_a_transition_is_applied_by_the_function_of_its_name(verb: str) -> None:
    assert PART_OF.get(verb, verb) in operations()


def test_every_operation_that_names_a_step_or_run_and_moves_it_is_a_transition() -> None:
    """Store methods of an attempt: `verb_step` and `verb_run`."""
    named = {name for name, _ in inspect.getmembers(Store) if re.fullmatch(r"[a-z_]+_(step|run)", name)}
    assert named - set(TRANSITIONS) == {"read_step", "started_run"}, "these only read"


def statement_name(path: FastPath[Any, Any]) -> str:
    return path.statement.name.decode()


def test_a_statement_in_an_sql_file_is_named_after_the_store_method_that_it_shortcuts() -> None:
    methods = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    for path in FAST_PATHS:
        assert path.shortcuts in methods
        assert statement_name(path).startswith(f"rival_{path.shortcuts}"), statement_name(path)
    in_files = {
        found
        for file in (ROOT / "rival_workers/store/postgres").glob("*.sql")
        for found in re.findall(r"^-- name: (\w+)\n-- shortcuts: (\w+)$", file.read_text(), re.MULTILINE)
    }
    assert in_files == {(statement_name(path), path.shortcuts) for path in FAST_PATHS}


def past(verb: str) -> str:
    return PAST.get(verb) or (verb + "d" if verb.endswith("e") else verb + "ed")


def names_for(transition: Transition) -> set[str]:
    verb = re.sub(r"_(step|run|external_step|below)$", "", transition.verb)
    return {transition.verb, past(verb), *transition.targets, *MORE_PRECISE.get(transition.verb, ())}


@pytest.mark.parametrize("entry", [*RUN_ENTRIES, *STEP_ENTRIES], ids=lambda entry: entry.name)
def test_an_entry_of_the_history_has_the_name_of_its_transition(entry: EntryType) -> None:
    if entry.transition is not None:
        table = RUN_TRANSITIONS if entry in RUN_ENTRIES else STEP_TRANSITIONS
        assert entry.name in names_for(table[entry.transition])


@pytest.mark.parametrize("verb", TRANSITIONS)
def test_a_transition_that_changes_a_status_has_an_entry_of_the_history(verb: str) -> None:
    own = {entry.name for entry in (*RUN_ENTRIES, *STEP_ENTRIES) if entry.transition == verb}
    recorded = own or RECORDED_AS.get(verb, set())
    assert recorded <= ENTRY_NAMES
    if not recorded and verb not in FOLLOW_FROM_A_STEP:
        transition = TRANSITIONS[verb]
        assert transition.sources == transition.targets, f"{verb} changes a status and leaves no trace of it"


def test_the_outcome_of_an_attempt_is_an_entry_of_the_history() -> None:
    page = (ROOT / "docs/reference/client.md").read_text()
    [listed] = re.findall(r"\| `Attempt` \|.*?`outcome` \((.*?)\)", page)
    outcomes = set(re.findall(r"`(\w+)`", listed))
    assert outcomes == {
        *("completed", "skipped", "failed", "timed_out", "revoked", "lost", "taken_over", "handed_back"),
    }
    assert outcomes <= ENTRY_NAMES
