"""Verbs on many runs: those that a filter chooses, each judged by itself, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rival_client import BulkOutcome, RivalError, RunFilter
from rival_client.api.bulk import NEEDS
from rival_workers import StepError, step
from tests.support.inline import Inline
from tests.support.output import whole

JOBS = RunFilter(workflow="job")


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url)
    broken = ["card declined"]
    opened.broken = broken  # type: ignore[attr-defined]

    def act(input: Any) -> str:
        if broken and input == "bad":
            raise StepError(broken[0])
        return "done"

    opened.define("job", step(lambda: 1, name="prepare"), act)
    yield opened
    opened.close()


def begin(inline: Inline, *inputs: str) -> list[str]:
    """One run after the other, so that their order is known."""
    started = [inline.rival.run("job", value, run_id=f"{value}-{n}").run_id for n, value in enumerate(inputs)]
    inline.drain()
    return started


def needed(verb: Any) -> dict[str, Any]:
    return {name: {"step": "act", "reason": "a test"}[name] for name in NEEDS.get(verb, ())}


def statuses(inline: Inline) -> dict[str, str]:
    return {run.run_id: run.status for run in inline.rival.runs(limit=1000)}


def test_all_that_have_failed_are_retried_and_each_is_reported(inline: Inline) -> None:
    begin(inline, "bad", "good", "bad")
    inline.broken.clear()  # type: ignore[attr-defined]
    heard: list[BulkOutcome] = []
    done = inline.rival.bulk("retry", RunFilter(workflow="job", error="CARD"), by="ann", on_outcome=heard.append)
    assert (done.done, done.refused, done.more) == (["bad-2", "bad-0"], {}, False)
    assert [one.run_id for one in heard] == done.done
    assert [one.reopened.opened for one in done.outcomes if one.reopened] == [("act",), ("act",)]
    inline.drain()
    assert set(statuses(inline).values()) == {"completed"}
    assert next(one.by for one in inline.rival.history("bad-0") if one.what == "retry_run") == "ann"


@pytest.mark.parametrize("verb", ["retry", "rewind", "pause", "resume", "cancel", "skip", "set_result"])
def test_a_preview_changes_nothing_and_says_what_the_verb_then_does(inline: Inline, verb: Any) -> None:
    begin(inline, "bad", "good", "bad")
    inline.rival.run("job", "good", run_id="open")
    inline.rival.run("job", "good", run_id="still")
    inline.rival.pause("still")
    inline.doorbell.take()
    everything = RunFilter(status=("completed", "failed", "pending"), paused=None)
    what = needed(verb)
    before = statuses(inline), [inline.rival.history(run_id) for run_id in statuses(inline)]
    for chosen in (everything, RunFilter()):
        preview = inline.rival.bulk(verb, chosen, dry_run=True, **what)
        assert (statuses(inline), [inline.rival.history(run_id) for run_id in statuses(inline)]) == before
        assert inline.doorbell.messages == []
    done = inline.rival.bulk(verb, RunFilter(), **what)
    assert ([one.run for one in done.outcomes], done.done) == ([one.run for one in preview.outcomes], preview.done)
    assert done.refused == preview.refused == {}
    expected = {"resume": {"still"}, "pause": {"open"}, "cancel": {"open", "still"}}
    assert set(done.done) == expected.get(verb, {"bad-0", "bad-2"})


@pytest.mark.parametrize(
    ("verb", "refused"),
    [
        ("retry", {"good-1": "it is completed", "open": "it is pending"}),
        ("rewind", {"open": "it is pending"}),
        ("pause", {"bad-0": "it is failed", "good-1": "it is completed"}),
        ("resume", {"bad-0": "it is failed", "good-1": "it is completed", "open": "it is not paused"}),
        ("cancel", {"bad-0": "it is failed", "good-1": "it is completed"}),
        ("skip", {"good-1": "step 'act' is completed", "open": "step 'act' does not exist yet"}),
        ("set_result", {"good-1": "step 'act' is completed", "open": "step 'act' does not exist yet"}),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason_and_the_others_are_done(
    inline: Inline, verb: Any, refused: dict[str, str]
) -> None:
    begin(inline, "bad", "good")
    inline.rival.run("job", "good", run_id="open")
    what = needed(verb)
    everything = ["bad-0", "good-1", "open"]
    for dry_run in (True, False):
        done = inline.rival.bulk(verb, everything, dry_run=dry_run, **what)
        assert set(done.refused) == set(refused)
        assert all(why in done.refused[run_id] for run_id, why in refused.items()), done.refused
        assert done.done == [run_id for run_id in everything if run_id not in refused]


def test_only_the_newest_are_taken_and_that_there_are_more_is_reported(inline: Inline) -> None:
    begin(inline, *["bad"] * 5)
    done = inline.rival.bulk("skip", JOBS, step="act", reason="enough", limit=3)
    assert (done.done, done.more) == (["bad-4", "bad-3", "bad-2"], True)
    rest = inline.rival.bulk("set_result", JOBS, step="act", value={"n": 1}, reason="enough", limit=3)
    assert (rest.done, rest.more) == (["bad-1", "bad-0"], False)
    assert inline.rival.result("bad-0").result == {"n": 1}
    assert inline.rival.bulk("retry", JOBS).outcomes == ()


@pytest.mark.parametrize("verb", ["retry", "rewind", "pause", "resume", "cancel", "skip", "set_result"])
def test_an_unknown_run_is_refused_and_the_others_are_done(inline: Inline, verb: Any) -> None:
    begin(inline, "bad")
    if verb in ("pause", "resume", "cancel"):
        inline.rival.retry("bad-0")
    if verb == "resume":
        inline.rival.pause("bad-0")
    heard: list[BulkOutcome] = []
    for dry_run in (True, False):
        how: dict[str, Any] = {**needed(verb), "dry_run": dry_run, "on_outcome": heard.append}
        done = inline.rival.bulk(verb, ["none", "bad-0"], **how)
        assert done.refused == {"none": "Unknown run 'none'. `rival ls` lists the runs."}
        assert done.done == ["bad-0"]
    assert [(one.run_id, one.run is None) for one in heard] == [("none", True), ("bad-0", False)] * 2


def test_an_id_that_is_given_twice_is_one_run(inline: Inline) -> None:
    begin(inline, "bad")
    assert inline.rival.bulk("retry", ["bad-0", "bad-0"]).done == ["bad-0"]


@pytest.mark.parametrize(("verb", "given"), [("retry", "step"), ("rewind", "reason"), ("cancel", "reason")])
def test_what_a_verb_does_not_take_is_refused(inline: Inline, verb: Any, given: str) -> None:
    with pytest.raises(RivalError, match=whole(f"Invalid argument {given}: {verb} takes no `{given}`.")):
        inline.rival.bulk(verb, JOBS, **{**needed(verb), given: "act"})


def test_a_run_that_has_moved_since_the_preview_is_judged_as_it_is_then(inline: Inline) -> None:
    begin(inline, "bad", "bad")
    preview = inline.rival.bulk("retry", JOBS, dry_run=True)
    inline.rival.retry("bad-0")
    done = inline.rival.bulk("retry", preview.done)
    assert done.done == ["bad-1"]
    assert done.refused["bad-0"] == (
        "Cannot retry run 'bad-0': it is running, and only a failed or cancelled run can be retried: rewind it to a "
        "step, or cancel it first. Nothing was changed."
    )


def test_a_verb_that_lacks_something_is_refused_before_anything_is_done(inline: Inline) -> None:
    begin(inline, "bad")
    with pytest.raises(RivalError, match=whole("Invalid argument step: rewind needs `step`.")):
        inline.rival.bulk("rewind", JOBS)
    with pytest.raises(RivalError, match=whole("Invalid argument reason: skip needs `reason`.")):
        inline.rival.bulk("skip", JOBS, step="act")
    with pytest.raises(
        RivalError,
        match=whole(
            "Invalid argument verb: 'delete' is not one of 'retry', 'rewind', 'pause', 'resume', 'cancel', "
            "'skip', 'set_result'."
        ),
    ):
        inline.rival.bulk("delete", JOBS)  # type: ignore[arg-type]
    assert statuses(inline) == {"bad-0": "failed"}
