"""Which runs there are: found by what they are and hold, on every store, and paged so that none comes twice or is
missed while others come and end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rival_client.errors import RivalError
from rival_client.model.json_match import is_contained
from rival_workers import StepError, flow, step
from rival_workers.definition.registry import Registry
from tests.support.effort import examples
from tests.support.inline import Inline
from tests.support.output import whole


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url)
    opened.define("echo", step(lambda input: input, name="only"))
    yield opened
    opened.close()


def ids(inline: Inline, **filters: Any) -> set[str]:
    return {run.run_id for run in inline.rival.runs(**filters)}


# -- filters ----------------------------------------------------------------------------------------------

STORED: dict[str, Any] = {
    "plain": {"customer": 7},
    "more": {"customer": 7, "ok": True},
    "float": {"customer": 7.0},
    "text": {"customer": "7"},
    "deep": {"customer": {"id": 7, "name": "Ann"}},
    "deeper": {"customer": {"id": 7, "at": {"city": "Oslo"}}},
    "list": {"tags": [1, 2]},
    "longer list": {"tags": [1, 2, 3]},
    "null": {"ok": None},
    "one": {"ok": 1},
    "quoted": {'a"b': {"c.d": "ü"}},
    "bare": 7,
    "array": [{"customer": 7}],
    "nothing": None,
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"customer": 7}, {"plain", "more", "float"}),
        ({"customer": 7, "ok": True}, {"more"}),
        ({"customer": "7"}, {"text"}),
        ({"customer": {"id": 7}}, {"deep", "deeper"}),
        ({"customer": {"id": 7, "at": {"city": "Oslo"}}}, {"deeper"}),
        ({"customer": {}}, {"deep", "deeper"}),
        ({"tags": [1, 2]}, {"list"}),
        ({"tags": [2, 1]}, set()),
        ({"tags": [1]}, set()),
        ({"ok": None}, {"null"}),
        ({"ok": 1}, {"one"}),
        ({'a"b': {"c.d": "ü"}}, {"quoted"}),
        ({"customer": {"id": 7, "name": None}}, set()),
    ],
)
def test_runs_are_found_by_fields_of_their_input_and_result(
    inline: Inline, wanted: dict[str, Any], found: set[str]
) -> None:
    inline.rival.run_many("echo", STORED.values(), run_ids=list(STORED))
    inline.drain()
    assert ids(inline, input=wanted) == found
    assert ids(inline, result=wanted) == found
    assert {name for name, value in STORED.items() if is_contained(wanted, value)} == found


def test_runs_are_found_by_a_part_of_their_error(inline: Inline) -> None:
    def fail(input: str) -> None:
        raise StepError(input) if input != "boom" else ValueError("100% _broken_")

    inline.define("fails", fail)
    for name in ("Card declined", "card expired", "boom"):
        inline.rival.run("fails", name, run_id=name)
    inline.rival.run("echo", "card", run_id="fine")
    inline.drain()
    assert ids(inline, error="card") == {"Card declined", "card expired"}
    assert ids(inline, error="CARD DECLINED") == {"Card declined"}
    assert ids(inline, error="valueerror: 100% _b") == {"boom"}
    assert (
        ids(inline, error="1000") == ids(inline, error="_x_") == ids(inline, error="card", status="completed") == set()
    )
    assert ids(inline, error="error", workflow="echo") == set()


def test_runs_are_found_by_several_statuses_their_end_and_whether_they_are_paused(inline: Inline) -> None:
    inline.rival.run("echo", 1, run_id="ended")
    inline.drain()
    for name in ("open", "paused", "cancelled"):
        inline.rival.run("echo", 1, run_id=name)
    inline.rival.pause("paused")
    inline.rival.cancel("cancelled")
    assert ids(inline, status=("completed", "cancelled", "completed")) == {"ended", "cancelled"}
    assert ids(inline, paused=True) == {"paused"}
    assert ids(inline, paused=False) == {"open", "ended", "cancelled"}
    ended = inline.rival.state("ended").completed_at
    assert ended is not None
    assert ids(inline, ended_since=ended) == {"ended", "cancelled"}
    assert ids(inline, ended_until=ended + dt.timedelta(microseconds=1)) == {"ended"}
    with pytest.raises(
        RivalError,
        match=whole(
            "Invalid argument status: 'done' is not one of 'pending', 'running', 'suspended', 'completed', "
            "'failed', 'cancelled'."
        ),
    ):
        inline.rival.runs(status="done")


def test_runs_are_found_by_their_parent(inline: Inline) -> None:
    made = flow("parent", registry=Registry())(lambda ctx: [ctx.spawn("echo", n) for n in range(3)])
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()
    inline.rival.run("parent", run_id="p")
    inline.drain()
    assert ids(inline, parent="p") == {"p/spawn:echo", "p/spawn:echo~2", "p/spawn:echo~3"}
    assert ids(inline, parent="p", input={"n": 1}) == set()


# -- pages ------------------------------------------------------------------------------------------------

#: What happens between two pages: a run comes, or a present one (by its number) is cancelled.
HAPPENS = st.lists(st.one_of(st.just("comes"), st.integers(0, 30)), max_size=4)


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(0, 15), limit=st.integers(1, 6), between=st.lists(HAPPENS, max_size=8), only_open=st.booleans()
)
def test_runs_that_come_or_end_between_two_pages_repeat_and_hide_no_other(
    inline: Inline, count: int, limit: int, between: list[list[Any]], only_open: bool
) -> None:
    for run in inline.rival.runs(status="pending", limit=1000):
        inline.rival.cancel(run.run_id)
    there = [one.run_id for one in inline.rival.run_many("echo", range(count))]
    filters: dict[str, Any] = {"status": ("pending", "running")} if only_open else {"since": oldest(inline, there)}
    seen: list[str] = []
    ended: set[str] = set()
    page = inline.rival.runs(**filters, limit=limit)
    while True:
        seen += [run.run_id for run in page]
        assert len(page) <= limit
        if page.next is None:
            break
        for happens in between.pop() if between else []:
            if happens == "comes":
                inline.rival.run("echo", 0)
            elif happens < len(there) and inline.rival.cancel(there[happens]):
                ended.add(there[happens])
        page = inline.rival.runs(**filters, limit=limit, after=page.next)
    assert len(set(seen)) == len(seen)
    assert set(there) - set(seen) <= (ended if only_open else set())
    assert set(seen) <= set(there)


def oldest(inline: Inline, there: list[str]) -> dt.datetime:
    times = [inline.rival.state(run_id, fold=0).created_at for run_id in there]
    return min(times, default=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))


def test_a_page_says_where_the_next_one_begins_and_the_last_says_nothing(inline: Inline) -> None:
    inline.rival.run_many("echo", range(4))
    first = inline.rival.runs(limit=2)
    assert first.next is not None
    assert first.next.replace("-", "").replace("_", "").isalnum()
    second = inline.rival.runs(limit=2, after=first.next)
    assert (len(second), second.next) == (2, None)
    assert inline.rival.runs(limit=2, before=first[-1]) == second
    assert inline.rival.runs(limit=4).next is None


@pytest.mark.parametrize("cursor", ["", "x", "bm9uc2Vuc2U", "ü", "W10"])
def test_a_cursor_that_is_none_is_refused(inline: Inline, cursor: str) -> None:
    with pytest.raises(
        RivalError,
        match=whole("Invalid argument after: '…' is not a cursor: give the `next` of the page before, as it was."),
    ):
        inline.rival.runs(after=cursor)
