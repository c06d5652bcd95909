"""Labels of runs: stored with the run by every form of a start, inherited by children, and found through an index."""

from __future__ import annotations

from typing import Any

import pytest

from rival_client import InvalidArgument, RunFilter
from rival_client.db.run_tables import labels as labels_table
from rival_workers import step
from rival_workers.definition.schedules import Schedule
from tests.support.flows import define, finish
from tests.support.inline import Inline
from tests.support.output import whole

ACME = {"tenant": "acme"}


def seen(ctx: Any) -> dict[str, str]:
    return dict(ctx.run.labels)


def labels_of(inline: Inline) -> dict[str, Any]:
    return {run.run_id: run.labels for run in inline.rival.runs()}


def ids(inline: Inline, **filters: Any) -> list[str]:
    return [run.run_id for run in inline.rival.runs(**filters)]


def test_every_step_sees_the_labels_of_its_run_also_after_a_message_and_an_event(inline: Inline) -> None:
    inline.define("w", step(seen, name="first"), step(seen, name="in_place"))
    inline.rival.run("w", run_id="r", labels={"tenant": "acme", "tier": 2})
    inline.drain()
    state = inline.rival.state("r")
    assert [one.result for one in state.steps] == [{"tenant": "acme", "tier": "2"}] * 2
    assert state.labels == {"tenant": "acme", "tier": "2"}
    object.__setattr__(inline.coordinator.settings, "continuation_budget", 0.0)
    inline.rival.run("w", run_id="by messages", labels=ACME)
    inline.drain()
    assert [one.result for one in inline.rival.state("by messages").steps] == [ACME, ACME]


def test_a_flow_that_received_an_event_still_sees_its_labels(inline: Inline) -> None:
    define(inline, lambda ctx: (ctx.await_event("go", key="k"), seen(ctx))[1])
    inline.rival.run("f", run_id="r", labels=ACME)
    inline.drain()
    inline.rival.send_event("go", 1, key="k")
    assert finish(inline) == ACME


def test_a_run_without_labels_has_none(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    inline.rival.run("w", run_id="r")
    inline.rival.run("w", run_id="empty", labels={})
    inline.drain()
    assert labels_of(inline) == {"r": None, "empty": None}
    assert inline.rival.state("r").result == {}
    assert "labels" not in inline.rival.history("r")[0].detail


def test_all_runs_of_a_run_many_have_the_labels(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    inline.rival.run_many("w", [1, 2, 3], run_ids=["a", "b", "c"], labels=ACME)
    inline.rival.run_many("w", [4], labels={"tenant": "other"})
    assert sorted(ids(inline, labels=ACME)) == ["a", "b", "c"]
    assert ids(inline, labels={"tenant": "nobody"}) == []


def test_a_start_that_finds_the_run_leaves_its_labels(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    inline.rival.run("w", run_id="r", labels=ACME)
    assert inline.rival.run("w", run_id="r", labels={"tenant": "other"}).status == "running"
    assert labels_of(inline) == {"r": ACME}
    assert ids(inline, labels={"tenant": "other"}) == []


@pytest.mark.parametrize("how", ["call", "spawn"])
def test_children_have_the_labels_of_their_parent_and_their_own_over_them(inline: Inline, how: str) -> None:
    define(inline, seen, "child")

    def parent(ctx: Any) -> Any:
        first = getattr(ctx, how)("child", labels={"tier": "gold"})
        return [first, getattr(ctx, how)("child", 1)]

    define(inline, parent, "parent")
    inline.rival.run("parent", run_id="r", labels={"tenant": "acme", "tier": "free"})
    finish(inline, "r")
    inline.drain()
    gold, free = {"tenant": "acme", "tier": "gold"}, {"tenant": "acme", "tier": "free"}
    assert labels_of(inline) == {"r": free, f"r/{how}:child": gold, f"r/{how}:child~2": free}
    assert sorted(ids(inline, labels=ACME)) == sorted(["r", f"r/{how}:child", f"r/{how}:child~2"])
    assert ids(inline, labels=gold) == [f"r/{how}:child"]
    assert inline.rival.state(f"r/{how}:child").parent_run_id == "r"


def test_the_runs_of_a_schedule_have_its_labels(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"), schedule=Schedule(60, catch_up="last", labels={"by": "definition"}))
    record = inline.rival.schedule("w", 60, name="s", labels=ACME, catch_up="last")
    assert record.options == {"labels": ACME}
    with inline.store.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE rival_schedules SET next_at = " + past(inline))
    inline.keeper.run_once()
    assert {tuple(one.items()) for one in labels_of(inline).values()} == {
        (("tenant", "acme"),),
        (("by", "definition"),),
    }


def past(inline: Inline) -> str:
    return "now() - interval '2 minutes'" if inline.store.database.is_postgres else "rival_now() - 120"


def test_pages_of_a_label_have_every_run_once_newest_first(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    for number in range(7):
        if inline.clock is not None:
            inline.clock.advance(1)
        inline.rival.run("w", run_id=f"r{number}", labels=ACME if number % 2 == 0 else {"tenant": "other"})
    first = inline.rival.runs(labels=ACME, limit=3)
    second = inline.rival.runs(labels=ACME, limit=3, after=first.next)
    assert [run.run_id for run in (*first, *second)] == ["r6", "r4", "r2", "r0"]
    assert second.next is None
    assert ids(inline, labels=ACME, since=inline.rival.state("r4").created_at) == ["r6", "r4"]


def test_a_label_combines_with_other_filters_and_with_bulk_verbs(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    inline.rival.run_many("w", [{"n": 1}, {"n": 2}], run_ids=["a", "b"], labels={"tenant": "acme", "tier": "gold"})
    inline.rival.run("w", {"n": 1}, run_id="c", labels=ACME)
    inline.drain()
    inline.rival.run("w", {"n": 1}, run_id="open", labels=ACME)
    assert sorted(ids(inline, labels=ACME, status=["completed", "pending"], input={"n": 1})) == ["a", "c", "open"]
    assert ids(inline, labels=ACME, status="pending") == ["open"]
    assert ids(inline, labels={"tier": "gold", "tenant": "acme"}, input={"n": 2}) == ["b"]
    done = inline.rival.bulk("cancel", RunFilter(labels=ACME, status="pending"))
    assert done.done == ["open"]


NOT_LABELS = 'is not a mapping of labels, as in {"tenant": "acme"}.'
NOT_A_NAME = "is not the name of a label: give 1 to 63 letters, digits and ._/-, beginning with a letter."
NOT_A_VALUE = "is not the value of a label: give a string of 1 to 200 characters, an int or a UUID."


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tenant=acme", f"'tenant=acme' {NOT_LABELS}"),
        ([("tenant", "acme")], f"a value of type list {NOT_LABELS}"),
        ({"": "x"}, f"'' {NOT_A_NAME}"),
        ({"tenant!": "x"}, f"'tenant!' {NOT_A_NAME}"),
        ({7: "x"}, f"7 {NOT_A_NAME}"),
        ({"a" * 64: "x"}, f"'{'a' * 59}… {NOT_A_NAME}"),
        ({"tenant": None}, f"tenant: None {NOT_A_VALUE}"),
        ({"tenant": ""}, "tenant: '' is not a usable text: give 1 to 200 characters, not only white space."),
        ({"tenant": "x" * 201}, f"tenant: '{'x' * 59}… has 201 characters; give at most 200."),
        ({"tenant": {"id": 7}}, f"tenant: a value of type dict {NOT_A_VALUE}"),
        ({f"n{n}": "x" for n in range(21)}, "21 labels; give at most 20."),
    ],
)
def test_wrong_labels_are_refused_before_anything_is_stored(inline: Inline, given: Any, problem: str) -> None:
    inline.define("w", step(seen, name="a"))
    for start in (
        lambda: inline.rival.run("w", labels=given),
        lambda: inline.rival.run_many("w", [1], labels=given),
        lambda: inline.rival.schedule("w", 60, name="s", labels=given),
        lambda: inline.rival.runs(labels=given),
    ):
        with pytest.raises(InvalidArgument) as caught:
            start()
        assert str(caught.value) == f"Invalid argument labels: {problem}"
    assert ids(inline) == []


def test_all_wrong_labels_are_named_at_once(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    with pytest.raises(InvalidArgument) as caught:
        inline.rival.run("w", labels={"no way": "x", "tenant": None, "ok": "y"})
    assert str(caught.value) == (
        "Invalid argument labels: 'no way' is not the name of a label: give 1 to 63 letters, digits and ._/-, "
        "beginning with a letter. tenant: None is not the value of a label: give a string of 1 to 200 "
        "characters, an int or a UUID."
    )
    assert "ok" not in str(caught.value)


def test_an_unknown_option_of_a_start_is_refused_with_the_one_that_was_meant(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument label: unknown option (did you mean 'labels'?).")
    ):
        inline.rival.run("w", label={"tenant": "acme"})  # type: ignore[call-arg]
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument timeout: it is an option of steps: give policies=[(default, {'timeout': 5})], "
            "with default or the name of a step."
        ),
    ):
        inline.rival.run("w", timeout=5)  # type: ignore[call-arg]
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument rate_limit: it is an option of workflows and their steps, not of one run."),
    ):
        inline.rival.run("w", rate_limit=5)  # type: ignore[call-arg]


def test_too_many_labels_with_those_of_the_parent_fail_the_flow(inline: Inline) -> None:
    define(inline, seen, "child")
    define(inline, lambda ctx: ctx.call("child", labels={f"own{n}": "x" for n in range(10)}), "parent")
    inline.rival.run("parent", run_id="r", labels={f"n{n}": "x" for n in range(15)})
    assert finish(inline, "r") == "InvalidArgument"


def test_a_deleted_run_leaves_no_labels(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    inline.rival.run("w", run_id="r", labels=ACME)
    inline.drain()
    assert inline.store.delete_ended_before(age=-60, limit=10, workflow="w") == 1
    with inline.store.database.autocommit() as connection:
        assert connection.execute(labels_table.select()).all() == []


def test_text_that_needs_quotes_is_kept(inline: Inline) -> None:
    inline.define("w", step(seen, name="a"))
    odd = {"tenant": 'a"b\\c{d},é\u2028'}
    run_id = 'odd "id", {x}\\'
    inline.rival.run("w", {"quote": '"\\"'}, run_id=run_id, labels=odd)
    inline.drain()
    assert inline.rival.state(run_id).result == odd
    assert ids(inline, labels=odd) == [run_id]
