"""`rival schedule`: add, list, change and remove, as a user types it."""

from __future__ import annotations

from pathlib import Path

from rival_workers import create_workflow, embedded
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli


def test_a_schedule_is_added_listed_changed_and_removed(shop: Cli) -> None:
    added = shop("schedule", "add", "nightly", "greet", "0 2 * * *", '{"name": "ada"}', "--timezone", "Europe/Berlin")
    added.prints("nightly: greet 0 2 * * * (Europe/Berlin), next at <time>")
    shop("schedule", "ls").prints(
        """
        schedule  workflow  when  catch up  own  next  last  input  error
        nightly  greet  0 2 * * * (Europe/Berlin)  none  <time>  {"name": "ada"}
        """
    )
    nightly = {"name": "nightly", "workflow": "greet", "cron": None, "every": 300, "timezone": "UTC", "own": False}
    nightly |= {"catch_up": "all", "input": {"name": "bob"}, "error": None, "options": None}
    nightly |= {"paused_at": None, "paused_by": None}
    nightly |= {"created_at": "<time>", "next_at": "<time>", "last_at": None}
    changed = shop("schedule", "add", "nightly", "greet", "300", '{"name": "bob"}', "--catch-up", "all", "--json")
    changed.prints_json(nightly)
    listed = shop("schedule", "ls", "--workflow", "greet", "--json")
    listed.prints_json([nightly])
    assert listed.json == [changed.json]
    shop("schedule", "rm", "nightly").prints("removed nightly")
    shop("schedule", "rm", "nightly", "--json", code=1).prints_json({"name": "nightly", "removed": False})
    shop("schedule", "rm", "nightly", code=1).complains("rival: unknown schedule nightly")
    shop("policy", "rm", "99", code=1).complains("rival: unknown rule 99")
    shop("schedule", "ls", "--json").prints_json([])
    shop("schedule", "ls").prints("no schedules")


def test_a_schedule_is_paused_resumed_fired_and_backfilled(shop: Cli) -> None:
    shop("schedule", "add", "hourly", "greet", "3600", '{"name": "ada"}')
    shop("schedule", "pause", "hourly").prints("paused hourly")
    shop("schedule", "ls").prints(
        """
        schedule  workflow  when  catch up  own  next  last  input  error
        hourly  greet  every 3600 s  none  paused  {"name": "ada"}
        """
    )
    assert shop("schedule", "ls", "--json").json[0]["next_at"] is None
    shop("schedule", "pause", "hourly", code=1).complains("rival: hourly is paused already")
    fired = shop("schedule", "fire", "hourly", "--json").json
    assert fired["run_id"].startswith("hourly@")
    shop("schedule", "resume", "hourly", "--json").prints_json({"name": "hourly", "resumed": True})
    missed = shop("schedule", "backfill", "hourly", "--since", "3h", "--dry-run", "--json").json
    assert len(missed["run_ids"]) == 3
    shop("schedule", "fire", "hourl", code=1).complains(
        "rival: Unknown schedule 'hourl' (did you mean 'hourly'?). `rival schedule ls` lists them."
    )
    why = shop("why", fired["run_id"], "--json").json
    assert [reason["what"] for reason in why["reasons"]] == ["no_worker"]


def test_a_backfill_lists_the_ticks_that_a_singleton_key_refuses(shop: Cli) -> None:
    singleton = ("--singleton", "k", "--on-conflict", "skip")
    shop("schedule", "add", "hourly", "greet", "3600", '{"name": "ada"}', *singleton)
    first = shop("schedule", "backfill", "hourly", "--since", "3h", "--json").json
    assert (len(first["run_ids"]), len(first["refused"])) == (1, 2)
    assert shop("schedule", "backfill", "hourly", "--since", "3h").out.splitlines() == [
        f"refused {run_id}: another run has the place of its singleton key" for run_id in first["refused"]
    ]


def rest() -> None: ...


def test_a_removed_schedule_of_a_workflow_itself_comes_back(bare: Cli, tmp_path: Path) -> None:
    file, registry = tmp_path / "runs.db", Registry()
    bare.env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    create_workflow("nightly").schedule("0 2 * * *").step(rest).register(registry)
    with embedded(file, registry=registry):
        pass
    bare("schedule", "rm", "nightly").prints(
        "removed nightly: it is the workflow's own, so the next worker that starts adds it again (`rival schedule "
        "pause` lasts)"
    )
    with embedded(file, registry=registry):
        pass
    bare("schedule", "rm", "nightly", "--json").prints_json({"name": "nightly", "removed": True, "own": True})


def test_what_makes_no_sense_is_said_in_one_line(shop: Cli) -> None:
    shop("schedule", "add", "n", "greet", "61 * * * *", '{"name": "ada"}', code=2).complains(
        "rival: Invalid argument when: '61 * * * *' is not a valid cron expression (bad minute): write five "
        'fields as in "*/5 * * * *" (minute, hour, day of month, month, day of week). (see `rival schedule add --help`)'
    )
    shop("schedule", "add", "n", "greet", "60", "{}", code=1).complains(
        """
        rival: The input does not fit workflow 'greet'; schedule 'n' was not set:
          - "name" is a required property
        """
    )
    misfit = shop("schedule", "add", "n", "greet", "60", "{}", "--json", code=1).error
    assert (misfit["type"], misfit["problems"]) == ("InvalidInput", ['"name" is a required property'])
    shop("schedule", "add", "greet", "greet", "60", '{"name": "ada"}', code=2).complains(
        "rival: Invalid argument name: 'greet' is the name of a workflow, whose own schedule it would be. Choose "
        "another name. (see `rival schedule add --help`)"
    )
