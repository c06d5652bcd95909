"""Bulk actions of the dashboard outlive the process that executes them: whatever it was doing when it ended, the next
one gives each run exactly one outcome, and applies the verb to each once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select, update

from rival_client.db.operator_tables import bulk_outcomes, bulks
from rival_client.db.types import after
from rival_client.sql import bulk_records
from rival_workers import step
from rival_workers.dashboard.board_options import Options
from tests.contract.test_dashboard_steps import ended, run
from tests.support.dashboard import Site

BY = "owner@dashboard"
RUNS = ["r0", "r1", "r2"]
#: Verb -> the entry that says that it was applied.
VERBS = {
    "retry": "retry_run",
    "rewind": "rewind_run",
    "skip": "skip",
    "set_result": "set_result",
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
}


@pytest.fixture
def runs(site: Site) -> list[str]:
    """Failed ones."""

    def fail() -> None:
        raise ValueError("no such card")

    site.inline.define("pays", step(fail, name="pay", max_attempts=1))
    return [run(site, "pays", {}, run_id) for run_id in RUNS]


@pytest.fixture
def other(site: Site) -> Iterator[Site]:
    """Another process of the dashboard."""
    opened = Site(site.inline)
    yield opened
    opened.close()


def order(verb: str) -> dict[str, Any]:
    step_ = "pay" if verb in ("rewind", "skip", "set_result") else None
    result = {"paid": True} if verb == "set_result" else None
    reason = "by phone" if verb in ("skip", "set_result") else None
    return {"step": step_, "result": result, "reason": reason, "limit": 100, "runs": RUNS, "filter": None}


def begun(site: Site, verb: str) -> int:
    """The row of an action, as the process writes it that begins it. Returns the token."""
    about = {"runs": RUNS, "total": len(RUNS), "given": order(verb), "commands": {"shell": f"rival {verb}"}}
    with site.inline.rival.database.transaction() as connection:
        return bulk_records.begin_bulk(connection, "b1", verb, BY, **about)


def reaches(site: Site, token: int, run_id: str) -> bool:
    with site.inline.rival.database.transaction() as connection:
        return bulk_records.begin_run(connection, "b1", token, run_id)


def applies(site: Site, verb: str, run_id: str, by: str = BY) -> None:
    given = order(verb)
    how = {"step": given["step"], "value": given["result"], "reason": given["reason"]}
    done = site.inline.rival.bulk(verb, [run_id], by=by, **how)  # type: ignore[arg-type]
    assert done.done == [run_id]


def stores(site: Site, token: int, number: int, run_id: str) -> bool:
    outcome = {"run_id": run_id, "workflow": "pays", "status": "failed", "why": None, "opened": [], "runs_again": 0}
    with site.inline.rival.database.transaction() as connection:
        return bulk_records.add_outcome(connection, "b1", token, number, outcome)


def falls_silent(site: Site) -> None:
    """The process of the action has been killed, half a minute ago."""
    with site.inline.rival.database.transaction() as connection:
        connection.execute(update(bulks).values(beat_at=after(-bulk_records.SILENT - 1)))


def prepared_for(site: Site, verb: str) -> None:
    if verb in ("pause", "resume", "cancel"):
        site.inline.rival.bulk("retry", RUNS)
    if verb == "resume":
        site.inline.rival.bulk("pause", RUNS)


def applied_by(site: Site, run_id: str, verb: str) -> list[str]:
    history = site.inline.rival.history(run_id)
    return [one.by or "" for one in history if one.what == VERBS[verb] and one.by == BY]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("died", ["before the verb", "after the verb", "after the outcome"])
def test_each_run_has_one_outcome_wherever_the_process_before_has_died(
    site: Site, runs: list[str], verb: str, died: str
) -> None:
    prepared_for(site, verb)
    token = begun(site, verb)
    assert reaches(site, token, "r0")
    if died != "before the verb":
        applies(site, verb, "r0")
    if died == "after the outcome":
        assert stores(site, token, 1, "r0")
    site.board.bulks.take_over()
    assert site.get("bulk/b1")["state"] == "running", "its process may be at it"
    assert applied_by(site, "r1", verb) == []
    falls_silent(site)
    assert site.get("bulk/b1")["state"] == "interrupted"
    site.board.bulks.take_over()
    found = ended(site, "b1")
    assert (found["state"], found["ended"], found["refused"], found["rest"]) == ("done", 3, 0, 0)
    assert [(one["run"], one["why"], one["workflow"]) for one in found["outcomes"]] == [
        (run_id, None, "pays") for run_id in RUNS
    ]
    assert [applied_by(site, run_id, verb) for run_id in RUNS] == [[BY]] * 3
    [entry] = site.audited()
    assert entry["about"] == "bulk:b1"
    assert {name: entry["detail"][name] for name in ("changed", "refused", "of")} == {
        "changed": 3,
        "refused": 0,
        "of": 3,
    }


def test_an_outcome_that_is_read_from_the_history_is_the_one_that_was_lost(site: Site, runs: list[str]) -> None:
    """The first run has its outcome from the history, the others have theirs from the verb."""
    token = begun(site, "rewind")
    assert reaches(site, token, "r0")
    applies(site, "rewind", "r0")
    falls_silent(site)
    site.board.bulks.take_over()
    first, *rest = [{**one, "run": ""} for one in ended(site, "b1")["outcomes"]]
    assert first == rest[0] == rest[1]
    assert (first["opened"], first["runs_again"], first["status"]) == (["pay"], 1, "failed")


def test_what_others_did_to_a_run_is_not_the_outcome_of_an_action(site: Site, runs: list[str]) -> None:
    token = begun(site, "rewind")
    assert reaches(site, token, "r0")
    applies(site, "rewind", "r0", by="bob")
    falls_silent(site)
    site.board.bulks.take_over()
    assert ended(site, "b1")["refused"] == 0
    assert applied_by(site, "r0", "rewind") == [BY]


def test_a_process_that_was_only_slow_changes_nothing_after_it_was_replaced(
    site: Site, other: Site, runs: list[str]
) -> None:
    token = begun(site, "rewind")
    assert reaches(site, token, "r0")
    falls_silent(site)
    other.board.bulks.take_over()
    assert ended(other, "b1")["state"] == "done"
    assert not reaches(site, token, "r1")
    assert not stores(site, token, 1, "r0")
    with site.inline.rival.database.transaction() as connection:
        assert not bulk_records.holds(connection, "b1", token)
        assert not bulk_records.end_bulk(connection, "b1", token, "failed", None)
    with site.inline.rival.database.transaction() as connection:
        rows = [(one.number, one.run_id) for one in connection.execute(select(bulk_outcomes))]
    assert sorted(rows) == [(1, "r0"), (2, "r1"), (3, "r2")]


def test_an_action_is_taken_over_by_one_process_of_many(site: Site, runs: list[str]) -> None:
    begun(site, "rewind")
    falls_silent(site)
    others = [Site(site.inline) for _ in range(4)]
    threads = [threading.Thread(target=one.board.bulks.take_over) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended(site, "b1")
    for one in others:
        one.close()
    assert [applied_by(site, run_id, "rewind") for run_id in RUNS] == [[BY]] * 3


def test_an_action_is_stopped_by_any_process(site: Site, other: Site, runs: list[str]) -> None:
    token = begun(site, "rewind")
    assert reaches(site, token, "r0")
    applies(site, "rewind", "r0")
    assert other.post("bulk/b1/stop")["state"] == "running"
    assert stores(site, token, 1, "r0"), "the run that it is at has its outcome"
    assert not reaches(site, token, "r1")
    falls_silent(site)
    other.board.bulks.take_over()
    found = ended(other, "b1")
    assert (found["state"], found["ended"], found["rest"]) == ("stopped", 1, 2)
    rest = ended(other, other.post("bulk", rest_of="b1", dry_run=True)["id"])
    assert [one["run"] for one in rest["outcomes"]] == ["r1", "r2"]
    assert [(one["what"], one["by"]) for one in site.audited()] == [("bulk", BY), ("stop_bulk", BY)]


def test_an_interrupted_action_can_be_stopped_and_its_rest_be_done_later(site: Site, runs: list[str]) -> None:
    begun(site, "rewind")
    falls_silent(site)
    refused = site.ask("POST", "bulk", json={"rest_of": "b1"})
    assert refused.status_code == 409, "it is continued, so its rest would be done twice"
    assert site.post("bulk/b1/stop")["state"] == "stopped"
    site.board.bulks.take_over()
    assert applied_by(site, "r0", "rewind") == []
    rest = ended(site, site.post("bulk", rest_of="b1", dry_run=True)["id"])
    done = ended(site, site.post("bulk", preview=rest["id"], dry_run=False)["id"])
    assert (done["state"], done["ended"]) == ("done", 3)
    assert site.ask("POST", "bulk", json={"rest_of": done["id"]}).status_code == 409


def test_a_dashboard_that_is_read_only_takes_nothing_over(site: Site, runs: list[str]) -> None:
    begun(site, "rewind")
    falls_silent(site)
    closed = Site(site.inline, options=Options(read_only=True))
    closed.board.bulks.watch()
    assert not [one for one in threading.enumerate() if one.name == "rival-bulks"]
    closed.close()
    assert site.get("bulk/b1")["state"] == "interrupted"


def test_actions_of_an_earlier_version_are_not_taken_over(site: Site, runs: list[str]) -> None:
    """Their process does not compare tokens."""
    begun(site, "rewind")
    with site.inline.rival.database.transaction() as connection:
        connection.execute(update(bulks).values(token=0))
    falls_silent(site)
    site.board.bulks.take_over()
    assert site.get("bulk/b1")["state"] == "interrupted"
    assert site.post("bulk/b1/stop")["state"] == "stopped"


def test_a_dashboard_that_closes_hands_its_actions_to_the_next_one_at_once(site: Site, runs: list[str]) -> None:
    first = Site(site.inline)
    shown = ended(first, first.post("bulk", verb="rewind", runs=RUNS, step="pay", dry_run=True)["id"])
    made = first.post("bulk", preview=shown["id"], dry_run=False)
    first.close()
    site.board.bulks.take_over()
    found = ended(site, made["id"])
    assert (found["state"], found["ended"], found["refused"]) == ("done", 3, 0)
    assert [applied_by(site, run_id, "rewind") for run_id in RUNS] == [[BY]] * 3
