"""Options of a start, as a user types them: labels, times, singletons, debounce and batches."""

from __future__ import annotations

from tests.acceptance.conftest import Cli

ADA = '{"name": "ada"}'


def test_a_labelled_run_is_found_by_its_label(shop: Cli) -> None:
    shop("run", "greet", ADA, "--run-id", "a", "--label", "tenant=acme", "--label", "tier=gold")
    shop("run", "greet", ADA, "--run-id", "b", "--label", "tenant=globex")
    found = shop("ls", "--label", "tenant=acme", "--json").json
    assert [(run["run_id"], run["labels"]) for run in found["runs"]] == [("a", {"tenant": "acme", "tier": "gold"})]
    shop("show", "a").prints(
        """
        run  a
        workflow  greet (version <version>)
        status  pending
        created  <time>
        input  {"name": "ada"}
        labels  tenant=acme tier=gold

        no steps
        """
    )
    assert shop("cancel", "--label", "tenant=acme", "--dry-run", "--json").json["runs"] == ["a"]
    shop("ls", "--label", "tenant", code=2).complains(
        "rival: Invalid value for '--label': tenant: '' is not a usable text: give 1 to 200 characters, not only white "
        "space. Give NAME=VALUE, as in tenant=acme. (see `rival ls --help`)"
    )


def test_a_run_begins_later_and_has_a_deadline(shop: Cli) -> None:
    shop("run", "greet", ADA, "--run-id", "later", "--delay", "3600", "--deadline", "60")
    shop("run", "greet", ADA, "--run-id", "then", "--scheduled-at", "2030-01-31T12:00+00:00")
    run = shop("show", "later", "--json").json
    assert (run["status"], run["due_at"] is not None, run["deadline_at"] is not None) == ("pending", True, True)
    assert shop("show", "then", "--json").json["due_at"].startswith("2030-01-31T12:00")
    shop("run", "greet", ADA, "--scheduled-at", "soon", code=2).complains(
        "rival: Invalid value for '--scheduled-at': 'soon' is not a time: give 2026-01-31T12:00 or "
        "2026-01-31T12:00+01:00. (see `rival run --help`)"
    )


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
