"""`rival schedule`: add, list, change and remove, as a user types it."""

from __future__ import annotations

from tests.acceptance.conftest import Cli


def test_a_schedule_is_added_listed_changed_and_removed(shop: Cli) -> None:
    said = shop("schedule", "add", "nightly", "greet", "0 2 * * *", '{"name": "ada"}', "--timezone", "Europe/Berlin")
    assert said.out.startswith("nightly: greet 0 2 * * * (Europe/Berlin), next at ")
    listed = shop("schedule", "ls").out
    assert "nightly" in listed
    assert "Europe/Berlin" in listed
    changed = shop("schedule", "add", "nightly", "greet", "300", '{"name": "bob"}', "--catch-up", "all", "--json").json
    assert (changed["every"], changed["catch_up"], changed["input"]) == (300, "all", {"name": "bob"})
    [only] = shop("schedule", "ls", "--workflow", "greet", "--json").json
    assert only == changed
    assert shop("schedule", "rm", "nightly").out == "removed nightly\n"
    assert shop("schedule", "rm", "nightly", "--json", code=1).json == {"name": "nightly", "removed": False}
    assert shop("schedule", "ls", "--json").json == []


def test_what_makes_no_sense_is_said_in_one_line(shop: Cli) -> None:
    said = shop("schedule", "add", "n", "greet", "61 * * * *", '{"name": "ada"}', code=2)
    assert "bad minute" in said.err
    assert said.err.count("\n") == 1
    assert "name" in shop("schedule", "add", "n", "greet", "60", "{}", "--json", code=1).error["problems"][0]
    assert "workflow" in shop("schedule", "add", "greet", "greet", "60", '{"name": "ada"}', code=1).err
