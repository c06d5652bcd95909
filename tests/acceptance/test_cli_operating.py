"""The operator's verbs from a terminal: their output, their refusals, and the preview before a bulk."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rival_workers import create_workflow, embedded, flow
from rival_workers.cli import operations
from rival_workers.cli import selection as bulk
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Answer, Cli

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
    # No worker runs from here on: what is opened stays open.
    preview = bare("retry", "--workflow", "job", "--since", "1h").out
    assert "would retry 4 runs\nNothing was changed: add --yes" in preview
    assert {one["status"] for one in bare("ls", "--json").json["runs"]} == {"failed"}

    assert bare("retry", "one", "--by", "ann", "--json").json["opened"] == ["act"]
    assert (
        "Cannot retry run 'one': it is running, and only a failed or cancelled run can be retried"
        in bare("retry", "one", code=1).err
    )

    assert "one would continue at prepare" in bare("rewind", "one", "prepare", "--dry-run").out
    assert "one continues at prepare\nsteps that run again: act" in bare("rewind", "one", "prepare").out
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
    [by_hand] = [entry for entry in told["history"] if entry["what"] == "set_result"]
    assert by_hand["by"] == "bob"
    assert by_hand["detail"] == {"reason": "by hand", "was": "pending", "result": {"n": 7}}

    retried = bare("retry", "--status", "failed", "--yes", "--json").json
    assert (retried["runs"], retried["refused"], retried["more"]) == (["four"], {}, False)
    assert "give either RUN or a filter" in bare("retry", code=2).err
    assert "There is no run 'nobody'" in bare("pause", "nobody", code=1).err
    BROKEN["yes"] = False
    with embedded(file, registry=registry) as rival:
        assert {rival.wait("job", name, 20).status for name in ("one", "two", "three", "four")} == {"completed"}


@pytest.fixture
def failed(bare: Cli, tmp_path: Path, registry: Registry) -> Cli:
    """Four runs that have failed, newest last; no worker runs."""
    file = tmp_path / "runs.db"
    bare.env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    BROKEN["yes"] = True
    with embedded(file, registry=registry) as rival:
        for n, name in enumerate(("one", "two", "three", "four")):
            rival.run("job", {"customer": {"id": n % 2}, "name": name}, run_id=name)
            assert rival.wait("job", name, 20).status == "failed"
    return bare


def runs_of(answer: Answer) -> list[str]:
    return [one["run_id"] for one in answer.json["runs"]]


def test_runs_are_listed_by_filter_and_page_by_page(failed: Cli) -> None:
    assert runs_of(failed("ls", "--input", "customer.id=1", "--json")) == ["four", "two"]
    assert runs_of(failed("ls", "--input", '{"name": "one"}', "--input", "customer.id=0", "--json")) == ["one"]
    assert runs_of(failed("ls", "--status", "failed", "--status", "completed", "--error", "VALUEERROR", "--json")) != []
    assert runs_of(failed("ls", "--error", "nothing like it", "--json")) == []
    first = failed("ls", "--workflow", "job", "--input", "customer.id=0", "--since", "1h", "--limit", "1")
    [more] = [line for line in first.out.splitlines() if line.startswith("more: rival ")]
    second = failed(*shlex.split(more)[2:], "--json").json
    assert ([one["run_id"] for one in second["runs"]], second["next"]) == (["one"], None)
    assert "'x' is not a cursor" in failed("ls", "--after", "x", code=1).err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("customer", "give KEY=VALUE, like customer=7"),
        ("=7", "give KEY=VALUE"),
        ("a..b=7", "give KEY=VALUE"),
        ("a=[1", "the value is not JSON"),
        ('{"a": ', "this is not JSON"),
        ('{"a": 1, "b": 2}', "'b' is given twice"),
    ],
)
def test_a_malformed_field_is_told_clearly(bare: Cli, option: str, told: str) -> None:
    said = bare("ls", "--input", "b=1", "--input", option, code=2).err
    assert told in said
    assert "--input" in said


def test_verbs_in_bulk_show_first_and_report_each(failed: Cli) -> None:
    shown = failed("rewind", "--workflow", "job", "--step", "prepare", "--limit", "3", "--dry-run").out
    assert "continue at prepare; run again act" in shown
    assert "would rewind 3 runs (the newest 3; raise --limit for more)" in shown
    by_id = ("--workflow", "job", "--input", "customer.id=1")
    assert failed("cancel", *by_id, "--dry-run", "--json").json["runs"] == []
    assert "rewound 2 runs" in failed("rewind", *by_id, "--step", "prepare", "--yes").out
    refused = failed("retry", *by_id, "--status", "running", "--yes", "--json", code=1).json
    assert (refused["runs"], list(refused["refused"])) == ([], ["four", "two"])
    assert (
        "Cannot retry run 'four': it is running" in failed("retry", *by_id, "--status", "running", "--yes", code=1).err
    )
    assert "paused 2 runs" in failed("pause", *by_id, "--yes").out
    assert failed("ls", "--paused", "--json").json["runs"][0]["run_id"] == "four"
    assert "resumed 2 runs" in failed("resume", *by_id, "--yes").out
    assert "cancelled 2 runs" in failed("cancel", *by_id, "--yes", "--by", "ann").out
    settled = failed("set-result", "--status", "failed", "--step", "act", "--value", "null", "--reason", "r", "--yes")
    assert "set the result of 2 runs" in settled.out
    assert runs_of(failed("ls", "--status", "completed", "--json")) == ["three", "one"]
    assert "skipped the step of 0 runs" in failed("skip", *by_id, "--step", "act", "--reason", "r", "--yes").out
    assert failed("cancel", "one").out == "one has already ended: completed\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rewind", "--workflow", "job"), "give the step"),
        (("rewind", "one", "prepare", "--step", "act"), "give the step"),
        (("cancel", "one", "--workflow", "job"), "give either RUN or a filter"),
        (("cancel",), "give either RUN or a filter"),
        (("set-result", "one", "act", "--reason", "r"), "give the result"),
    ],
)
def test_a_verb_that_lacks_something_says_what(bare: Cli, words: tuple[str, ...], told: str) -> None:
    assert told in bare(*words, code=2).err


def test_on_a_terminal_a_bulk_verb_asks(failed: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVAL_DATABASE_URL", failed.env["RIVAL_DATABASE_URL"])
    monkeypatch.setattr(bulk, "is_terminal", lambda: True)
    for answer, status in (("n\n", "failed"), ("\n", "failed"), ("y\n", "running")):
        told = CliRunner().invoke(operations.retry, ["--workflow", "job"], input=answer)
        assert "retry 4 runs? [y/N]" in told.output
        assert {one["status"] for one in failed("ls", "--json").json["runs"]} == {status}


def test_a_family_is_drawn_as_a_tree(bare: Cli, tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    bare.env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    registry = Registry()
    create_workflow("leaf").step(prepare).register(registry)
    flow("top", registry=registry)(lambda ctx: [ctx.call("leaf"), *(ctx.spawn("leaf") for _ in range(4))])
    with embedded(file, registry=registry) as rival:
        rival.run("top", run_id="r")
        assert rival.wait("top", "r", 20).status == "completed"
        for child in ["r/spawn:leaf", *(f"r/spawn:leaf~{n}" for n in (2, 3, 4))]:
            rival.wait("leaf", child, 20)
    lines = bare("tree", "r/call:leaf", "--width", "2").out.splitlines()
    assert lines[1].startswith("r ")
    assert lines[2].startswith("├─ r/call:leaf ")
    assert "top/call:leaf" in lines[2]
    assert lines[2].rstrip().endswith("this run")
    assert "not awaited" in lines[3]
    assert lines[4].startswith("└─ … 3 more (3 completed)")
    told = bare("tree", "r", "--json").json
    assert [child["is_awaited"] for child in told["children"]] == [True, False, False, False, False]
    assert bare("tree", "r/call:leaf", "--below", "--json").json["children"] == []
    assert "There is no run 'nobody'" in bare("tree", "nobody", code=1).err
