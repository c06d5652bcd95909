"""Options of a start, as a user types them: labels, times, singletons, debounce and batches."""

from __future__ import annotations

from tests.acceptance.conftest import Cli

ADA = '{"name": "ada"}'


def test_a_labelled_run_is_found_by_its_label(shop: Cli) -> None:
    shop("run", "greet", ADA, "--run-id", "a", "--label", "tenant=acme", "--label", "tier=gold")
    shop("run", "greet", ADA, "--run-id", "b", "--label", "tenant=globex")
    found = shop("ls", "--label", "tenant=acme", "--json").json
    assert [(run["run_id"], run["labels"]) for run in found["runs"]] == [("a", {"tenant": "acme", "tier": "gold"})]
    assert "tenant=acme tier=gold" in shop("show", "a").out
    assert shop("cancel", "--label", "tenant=acme", "--dry-run", "--json").json["runs"] == ["a"]
    wrong = shop("ls", "--label", "tenant", code=2).err
    assert "Give NAME=VALUE, as in tenant=acme" in wrong


def test_a_run_begins_later_and_has_a_deadline(shop: Cli) -> None:
    shop("run", "greet", ADA, "--run-id", "later", "--delay", "3600", "--deadline", "60")
    shop("run", "greet", ADA, "--run-id", "then", "--scheduled-at", "2030-01-31T12:00+00:00")
    run = shop("show", "later", "--json").json
    assert (run["status"], run["due_at"] is not None, run["deadline_at"] is not None) == ("pending", True, True)
    assert shop("show", "then", "--json").json["due_at"].startswith("2030-01-31T12:00")
    assert "is not a time" in shop("run", "greet", ADA, "--scheduled-at", "soon", code=2).err


def test_starts_share_a_run(shop: Cli) -> None:
    alone = ("run", "greet", ADA, "--singleton", "k", "--delay", "3600")
    shop(*alone, "--run-id", "first").prints("started first")
    shop(*alone).prints("first was started before")
    shop(*alone, "--on-conflict", "skip").prints("skipped: first has the singleton place")
    said = shop(*alone, "--on-conflict", "skip", "--json").json
    assert (said["status"], said["instead_of"]) == ("skipped", "first")
    waits = "queued second: it waits for another run with its singleton key"
    shop(*alone, "--run-id", "second", "--on-conflict", "queue").prints(waits)
    assert shop(*alone, "--on-conflict", "queue", "--json").json["status"] == "queued"
    assert shop("show", "second", "--json").json["singleton"] == "k"
    started = shop("run", "greet", ADA, "--debounce", "60", "--key", "k", "--json").json
    again = shop("run", "greet", ADA, "--debounce", "60", "--key", "k", "--json").json
    assert (started["status"], again["status"], again["run_id"]) == ("started", "gathered", started["run_id"])
