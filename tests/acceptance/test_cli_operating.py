"""An operator's verbs from a terminal: told plainly, refused plainly, in bulk only after a preview."""

from __future__ import annotations

from pathlib import Path

import pytest

from rival_workers import create_workflow, embedded
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli

BROKEN = {"yes": True}


def prepare() -> str:
    return "prepared"


def act() -> str:
    if BROKEN["yes"]:
        raise ValueError("broken")
    return "done"


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    create_workflow("job").step(prepare).step(act).register(registry)
    return registry


def test_runs_are_retried_rewound_paused_and_settled_by_hand(bare: Cli, tmp_path: Path, registry: Registry) -> None:
    file = tmp_path / "runs.db"
    bare.env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    BROKEN["yes"] = True
    with embedded(file, registry=registry) as rival:
        for name in ("one", "two", "three", "four"):
            rival.run("job", run_id=name)
            assert rival.wait("job", name, 20).status == "failed"
    # Nobody works on them from here on: what is opened stays open.
    preview = bare("retry", "--workflow", "job", "--since", "1h").out
    assert "would retry 4 runs\nNothing was changed: add --yes" in preview
    assert {one["status"] for one in bare("ls", "--json").json["runs"]} == {"failed"}

    assert bare("retry", "one", "--by", "ann", "--json").json["opened"] == ["act"]
    assert "Cannot retry run 'one': it is running. Nothing was changed." in bare("retry", "one", code=1).err

    assert "one would go on at prepare" in bare("rewind", "one", "prepare", "--dry-run").out
    assert "one goes on at prepare\nundone: act" in bare("rewind", "one", "prepare").out
    assert "known: prepare)" in bare("rewind", "one", "nothing", code=1).err

    assert bare("pause", "one").out == "paused one\n"
    assert bare("pause", "one").out == "one is paused: nothing to do\n"
    assert "paused     since " in bare("show", "one").out
    assert bare("resume", "one", "--json").json["is_paused"] is False

    assert "act of two is skipped" in bare("skip", "two", "act", "--reason", "not needed").out
    assert bare("show", "two", "--json").json["status"] == "completed"
    bare("set-result", "three", "act", '{"n": 7}', "--reason", "by hand", "--by", "bob")
    told = bare("show", "three", "--json", "--history").json
    assert (told["status"], told["result"]) == ("completed", {"n": 7})
    assert told["history"][-1]["detail"] == {"by": "bob", "reason": "by hand", "was": "pending"}

    retried = bare("retry", "--status", "failed", "--yes", "--json").json
    assert (retried["runs"], retried["refused"], retried["more"]) == (["four"], {}, False)
    assert "give either RUN or a filter" in bare("retry", code=2).err
    assert "There is no run 'nobody'" in bare("pause", "nobody", code=1).err
    BROKEN["yes"] = False
    with embedded(file, registry=registry) as rival:
        assert {rival.wait("job", name, 20).status for name in ("one", "two", "three", "four")} == {"completed"}
