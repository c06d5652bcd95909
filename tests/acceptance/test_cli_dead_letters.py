"""`rival dlq`: list, show, redrive and drop, as an operator types it."""

from __future__ import annotations

from pathlib import Path

from rival_workers import create_workflow, embedded
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli


def charge() -> None:
    raise ConnectionError("the bank is closed")


def test_dead_letters_are_listed_shown_redriven_and_dropped(bare: Cli, tmp_path: Path) -> None:
    file, registry = tmp_path / "runs.db", Registry()
    bare.env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    create_workflow("pay").step(charge, on_failure="dead_letter").register(registry)
    with embedded(file, registry=registry) as rival:
        for name in ("one", "two", "three"):
            assert rival.run("pay", run_id=name).wait(20).status == "failed"
    # No worker runs from here on: what is opened stays open.
    bare("dlq", "ls", "--workflow", "pay").prints(
        """
        run  step  workflow  failed  error
        three  charge  pay  <time>  ConnectionError: the bank is closed
        two  charge  pay  <time>  ConnectionError: the bank is closed
        one  charge  pay  <time>  ConnectionError: the bank is closed
        """
    )
    letter = {"run_id": "three", "path": "charge", "workflow": "pay", "error_type": "ConnectionError"}
    letter |= {"message": "the bank is closed", "at": "<time>"}
    bare("dlq", "ls", "--error", "bank", "--limit", "1", "--json").prints_json({"dead_letters": [letter], "more": True})
    bare("dlq", "ls", "--limit", "2").prints(
        """
        run  step  workflow  failed  error
        three  charge  pay  <time>  ConnectionError: the bank is closed
        two  charge  pay  <time>  ConnectionError: the bank is closed
        more: these are the newest 2; raise --limit
        """
    )
    bare("dlq", "show", "one").prints(
        """
        charge of one (pay), failed at <time>
        Traceback (most recent call last):
          File "<repository>/tests/acceptance/test_cli_dead_letters.py", line …, in charge
            raise ConnectionError("the bank is closed")
        ConnectionError: the bank is closed
        """
    )
    bare("dlq", "redrive", "one", "--dry-run").prints(
        """
        run  would
        one  continue
        would redrive 1 run
        """
    )
    bare("dlq", "redrive", "--workflow", "pay", "--limit", "2", "--dry-run").prints(
        """
        run  would
        three  continue
        two  continue
        would redrive 2 runs (the newest 2 dead letters; raise --limit for more)
        """
    )
    bare("dlq", "redrive", "--workflow", "pay", "--limit", "2", "--dry-run", "--json").prints_json(
        {"done": ["three", "two"], "refused": {}, "dry_run": True, "more": True}
    )
    bare("dlq", "redrive", "one", "--by", "ana", "--json").prints_json(
        {"done": ["one"], "refused": {}, "dry_run": False, "more": False}
    )
    bare("dlq", "redrive", "one", code=1).stdout_is("redrove 0 runs, refused 1")
    bare("dlq", "redrive", code=2)
    for verb in ("drop", "show"):
        bare("dlq", verb, "nope", code=1).complains("rival: Unknown run 'nope'. `rival ls` lists the runs.")
    bare("dlq", "drop", "one", code=1).complains(
        "rival: Cannot drop the dead letters of run 'one': it has none. Nothing was changed."
    )
    bare("dlq", "drop", "--step", "charge", "--limit", "1").prints(
        "dropped 1 dead letter (the newest 1 dead letter; raise --limit for more)"
    )
    bare("dlq", "drop", "--step", "charge", "--json").prints_json({"dropped": 1, "more": False})
    bare("dlq", "ls").prints("no dead letters")
    bare("dlq", "show", "two").prints("two has no dead letters")
