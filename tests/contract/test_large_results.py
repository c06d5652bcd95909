"""A large result is written once: the history names the row that has it, and keeps it when that row changes."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from rival_client.db.log_tables import history
from rival_client.model.rebuild import rebuild
from rival_client.sql.history import NAMED_ABOVE
from rival_client.sql.reads.history_reads import read_entry
from rival_workers import for_each, step
from tests.support.histories import assert_histories_are_complete
from tests.support.inline import Inline

#: Key order, spaces and numbers must come back as they are.
LARGE = {"z": "x" * NAMED_ABOVE, "a": [1, 1.0, None, 'é\\"'], "b": 12345678901234567890}


class Numbered:
    """Returns another large value each time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        return {"call": self.calls, **LARGE}


def results(inline: Inline, run_id: str) -> list[tuple[str | None, Any]]:
    found = inline.rival.history(run_id)
    return [(one.path, one.detail["result"]) for one in found if "result" in one.detail]


def characters(inline: Inline, run_id: str) -> int:
    """Of all history entries of a run, as they are in the table."""
    with inline.store.database.autocommit() as connection:
        return sum(
            len(str(one)) for one in connection.scalars(select(history.c.detail).where(history.c.run_id == run_id))
        )


def finished(inline: Inline, *steps: Any) -> str:
    inline.define("w", *steps)
    run_id = inline.rival.run("w").run_id
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"
    return run_id


def test_the_history_of_a_run_with_large_results_has_them_and_does_not_store_them_again(inline: Inline) -> None:
    run_id = finished(inline, step(Numbered(), name="a"), step(Numbered(), name="b"))
    value = {"call": 1, **LARGE}
    assert results(inline, run_id) == [("a", value), ("b", value), (None, value)]
    assert list(results(inline, run_id)[0][1]) == list(value), "the order of keys is kept"
    if inline.store.database.is_postgres:
        assert characters(inline, run_id) < NAMED_ABOVE
    rebuilt = rebuild(inline.rival.history(run_id))
    assert (rebuilt.result, rebuilt.steps["a"].result) == (value, value)
    assert_histories_are_complete(inline.store.database)


def test_large_results_of_steps_with_limits_are_stored_once_too(inline: Inline) -> None:
    run_id = finished(inline, *(step(Numbered(), name=name, concurrency_limit=5) for name in ("a", "b")))
    value = {"call": 1, **LARGE}
    assert results(inline, run_id) == [("a", value), ("b", value), (None, value)]
    if inline.store.database.is_postgres:
        assert characters(inline, run_id) < NAMED_ABOVE
    inline.rival.rewind(run_id, "a")
    assert results(inline, run_id) == [("a", value), ("b", value), (None, value)]
    assert_histories_are_complete(inline.store.database)


def test_no_entry_shows_how_it_names_a_row(inline: Inline) -> None:
    run_id = finished(inline, step(Numbered(), name="a"))
    entries = [*inline.rival.history(run_id), *inline.rival.history(run_id, slim=True)]
    assert not [one for one in entries if {"result_token", "result_of"} & one.detail.keys()]
    assert all("result" not in one.detail for one in inline.rival.history(run_id, slim=True))
    last = inline.rival.history(run_id)[-1]
    with inline.store.database.autocommit() as connection:
        found = read_entry(connection, run_id, last.id)
    assert found is not None
    assert found.detail["result"] == {"call": 1, **LARGE}


def test_results_of_rows_that_a_rewind_deletes_stay_in_the_history(inline: Inline) -> None:
    numbered = Numbered()
    run_id = finished(inline, step(numbered, name="a"), step(numbered, name="b"))
    before = results(inline, run_id)
    inline.rival.rewind(run_id, "a")
    assert results(inline, run_id) == before
    inline.drain()
    again = [("a", {"call": 3, **LARGE}), ("b", {"call": 4, **LARGE}), (None, {"call": 4, **LARGE})]
    assert results(inline, run_id) == [*before, *again]
    inline.rival.rewind(run_id, "b")
    inline.drain()
    last = {"call": 5, **LARGE}
    assert results(inline, run_id) == [*before, *again, ("b", last), (None, last)]
    assert_histories_are_complete(inline.store.database)


def test_a_rewound_run_is_rebuilt_as_it_was_before(inline: Inline) -> None:
    run_id = finished(inline, step(Numbered(), name="a"))
    until = inline.rival.history(run_id)[-1].id
    inline.rival.rewind(run_id, "a")
    inline.rival.cancel(run_id)
    was = rebuild(one for one in inline.rival.history(run_id) if one.id <= until)
    assert (was.status, was.result, was.steps["a"].result) == ("completed", {"call": 1, **LARGE}, {"call": 1, **LARGE})
    assert_histories_are_complete(inline.store.database)


def test_items_with_large_results_have_them_in_the_history(inline: Inline) -> None:
    inline.define("w", for_each("all", items=lambda: list(range(5)), do=[step(Numbered(), name="one")], concurrency=2))
    run_id = inline.rival.run("w").run_id
    inline.drain()
    calls = [value["call"] for path, value in results(inline, run_id) if (path or "").endswith("/one")]
    assert sorted(calls) == [1, 2, 3, 4, 5]
    inline.rival.rewind(run_id, "all")
    assert sorted(value["call"] for path, value in results(inline, run_id) if (path or "").endswith("/one")) == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert_histories_are_complete(inline.store.database)


@pytest.mark.parametrize("size", [0, NAMED_ABOVE - 2, NAMED_ABOVE - 1, 100_000])
def test_results_around_the_limit_come_back_as_they_were(inline: Inline, size: int) -> None:
    run_id = finished(inline, step(lambda: "x" * size, name="a"))
    assert results(inline, run_id) == [("a", "x" * size), (None, "x" * size)]
    inline.rival.rewind(run_id, "a")
    assert results(inline, run_id) == [("a", "x" * size), (None, "x" * size)]
