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
from tests.support.workers import lines_like

BROKEN = {"yes": True}
REFUSED = (
    "Cannot retry run '{}': it is running, and only a failed or cancelled run can be retried: rewind it to a step, or "
    "cancel it first. Nothing was changed."
)
EITHER = "give either RUN or a filter, like --workflow, --status, --since or --error"
THE_STEP = "give the step: STEP after RUN, or --step with a filter"
A_FIELD = "give KEY=VALUE, like customer=7 or customer.id=7, or a JSON object."


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
    bare("retry", "--workflow", "job", "--since", "1h").prints(
        """
        run  workflow  status  created  would
        four  job  failed  <time>  ValueError: broken  continue at act
        three  job  failed  <time>  ValueError: broken  continue at act
        two  job  failed  <time>  ValueError: broken  continue at act
        one  job  failed  <time>  ValueError: broken  continue at act
        would retry 4 runs
        Nothing was changed: add --yes to do it.
        """
    )
    assert {one["status"] for one in bare("ls", "--json").json["runs"]} == {"failed"}

    reopened = {"run_id": "one", "opened": ["act"], "runs_again": ["act"], "children": [], "retried_children": []}
    bare("retry", "one", "--by", "ann", "--json").prints_json(reopened | {"dry_run": False})
    bare("retry", "one", code=1).complains(f"rival: {REFUSED.format('one')}")

    rewound = reopened | {"opened": ["prepare"], "runs_again": ["act", "prepare"]}
    bare("rewind", "one", "prepare", "--dry-run", "--json").prints_json(rewound | {"dry_run": True})
    bare("rewind", "one", "prepare", "--dry-run").prints(
        """
        one would continue at prepare
        steps that run again: act
        """
    )
    bare("rewind", "one", "prepare").prints(
        """
        one continues at prepare
        steps that run again: act
        """
    )
    bare("rewind", "one", "nothing", code=1).complains(
        "rival: Cannot rewind run 'one': no step 'nothing' has begun (known: prepare). Nothing was changed."
    )

    bare("pause", "one").prints("paused one")
    bare("pause", "one").prints("one is paused: nothing to do")
    paused = {"run_id": "one", "status": "running", "paused": False, "is_paused": True}
    bare("pause", "one", "--json").prints_json(paused)
    bare("show", "one").prints(
        """
        run  one
        workflow  job (version <version>)
        status  running
        at  prepare
        paused  since <time>
        created  <time>
        input  null

        step  status  attempts  queued  took
        prepare  pending  0

        step  attempt  outcome  took  error
        act  1  failed  <duration>  ValueError: broken

        act, attempt 1:
          Traceback (most recent call last):
            File "<repository>/tests/acceptance/test_cli_operating.py", line …, in act
              raise ValueError("broken")
          ValueError: broken
        """
    )
    resumed = {"run_id": "one", "status": "running", "resumed": True, "is_paused": False}
    bare("resume", "one", "--json").prints_json(resumed)

    bare("skip", "two", "act", "--reason", "not needed").prints("act of two is skipped; the run continues")
    assert bare("show", "two", "--json").json["status"] == "completed"
    settled = bare("set-result", "three", "act", '{"n": 7}', "--reason", "by hand", "--by", "bob", "--json")
    settled.prints_json({"run_id": "three", "step": "act", "status": "completed"})
    told = bare("show", "three", "--json", "--history").json
    assert (told["status"], told["result"]) == ("completed", {"n": 7})
    [by_hand] = [entry for entry in told["history"] if entry["what"] == "set_result"]
    assert by_hand["by"] == "bob"
    assert by_hand["detail"] == {"reason": "by hand", "was": "pending", "result": {"n": 7}}

    bulk = {"verb": "retry", "dry_run": False, "runs": ["four"], "refused": {}, "more": False}
    bulk |= {"reopened": {"four": reopened | {"run_id": "four"}}}
    bare("retry", "--status", "failed", "--yes", "--json").prints_json(bulk)
    bare("pause", "nobody", code=1).complains("rival: Unknown run 'nobody'. `rival ls` lists the runs.")
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
    first.prints(
        """
        run  workflow  status  created  took
        three  job  failed  <time>  <duration>  ValueError: broken
        more: rival ls --workflow job --since <time> --input '{"customer": {"id": 0}}' --limit 1 --after …
        """
    )
    more = first.out.splitlines()[-1]
    second = failed(*shlex.split(more)[2:], "--json").json
    assert ([one["run_id"] for one in second["runs"]], second["next"]) == (["one"], None)
    failed("ls", "--after", "x", code=2).complains("rival: Invalid argument after: 'x' is not a cursor: …")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("customer", A_FIELD),
        ("=7", A_FIELD),
        ("a..b=7", A_FIELD),
        ("a=[1", "the value is not JSON: Expecting ',' delimiter: line 1 column 3 (char 2)."),
        ('{"a": ', "this is not JSON: Expecting value: line 1 column 7 (char 6)."),
        ('{"a": 1, "b": 2}', "'b' is given twice."),
    ],
)
def test_a_malformed_field_gets_a_clear_error(bare: Cli, option: str, told: str) -> None:
    bare("ls", "--input", "b=1", "--input", option, code=2).complains(
        f"rival: Invalid value for '--input': {option!r}: {told} (see `rival ls --help`)"
    )


def test_a_dry_run_on_one_run_says_what_would_happen_to_it(failed: Cli) -> None:
    settle = ("set-result", "one", "act", "7", "--reason", "r", "--dry-run")
    failed(*settle).prints("act of one would be completed; the run would continue")
    failed(*settle, "--json").prints_json({"run_id": "one", "step": "act", "status": "completed", "dry_run": True})
    failed("skip", "one", "act", "--reason", "r", "--dry-run").prints(
        "act of one would be skipped; the run would continue"
    )
    failed("skip", "one", "nothing", "--reason", "r", "--dry-run", code=1).complains(
        "rival: Cannot skip run 'one': …. Nothing was changed."
    )
    failed("cancel", "nobody", "--dry-run", code=1).complains("rival: Unknown run 'nobody'. `rival ls` lists the runs.")
    failed("rewind", "one", "prepare").prints("one continues at prepare\nsteps that run again: act")
    failed("pause", "one", "--dry-run").prints("would pause one")
    failed("cancel", "one", "--dry-run", "--json").prints_json(
        {"run_id": "one", "cancelled": True, "status": "running", "dry_run": True}
    )
    by_id = ("--status", "running", "--dry-run")
    failed("cancel", *by_id).stdout_is(
        """
        run  workflow  status  created  would
        one  job  running  <time>
        would cancel 1 run
        """
    )
    settle = ("set-result", "--status", "failed", "--step", "act", "--value", "7", "--reason", "r", "--dry-run")
    assert failed(*settle, "--limit", "1").out.splitlines()[-1] == (
        "would set the result of 1 run (the newest 1; raise --limit for more)"
    )


def test_verbs_in_bulk_show_first_and_report_each(failed: Cli) -> None:
    failed("rewind", "--workflow", "job", "--step", "prepare", "--limit", "3", "--dry-run").prints(
        """
        run  workflow  status  created  would
        four  job  failed  <time>  ValueError: broken  continue at prepare; run again act
        three  job  failed  <time>  ValueError: broken  continue at prepare; run again act
        two  job  failed  <time>  ValueError: broken  continue at prepare; run again act
        would rewind 3 runs (the newest 3; raise --limit for more)
        """
    )
    by_id = ("--workflow", "job", "--input", "customer.id=1")
    none = {"verb": "cancel", "dry_run": True, "runs": [], "refused": {}, "more": False, "reopened": {}}
    failed("cancel", *by_id, "--dry-run", "--json").prints_json(none)
    failed("rewind", *by_id, "--step", "prepare", "--yes").prints("rewound 2 runs")
    refused = {run: REFUSED.format(run) for run in ("four", "two")}
    answer = failed("retry", *by_id, "--status", "running", "--yes", "--json", code=1)
    answer.prints_json(none | {"verb": "retry", "dry_run": False, "refused": refused})
    answer = failed("retry", *by_id, "--status", "running", "--yes", code=1)
    answer.stdout_is("retried 0 runs, refused 2")
    answer.stderr_is("\n".join(refused.values()))
    failed("pause", *by_id, "--yes").prints("paused 2 runs")
    assert failed("ls", "--paused", "--json").json["runs"][0]["run_id"] == "four"
    failed("resume", *by_id, "--yes").prints("resumed 2 runs")
    failed("cancel", *by_id, "--yes", "--by", "ann").prints("cancelled 2 runs")
    settled = failed("set-result", "--status", "failed", "--step", "act", "--value", "null", "--reason", "r", "--yes")
    settled.prints("set the result of 2 runs")
    assert runs_of(failed("ls", "--status", "completed", "--json")) == ["three", "one"]
    failed("skip", *by_id, "--step", "act", "--reason", "r", "--yes").prints("skipped the step of 0 runs")
    failed("cancel", "one").prints("one has already ended: completed")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rewind", "--workflow", "job"), THE_STEP),
        (("rewind", "one", "prepare", "--step", "act"), THE_STEP),
        (("cancel", "one", "--workflow", "job"), EITHER),
        (("cancel",), EITHER),
        (("retry",), EITHER),
        (
            ("set-result", "one", "act", "--reason", "r"),
            "give the result: JSON after RUN and STEP, or --value with a filter",
        ),
    ],
)
def test_a_verb_that_lacks_something_says_what(bare: Cli, words: tuple[str, ...], told: str) -> None:
    bare(*words, code=2).complains(f"rival: {told} (see `rival {words[0]} --help`)")


def test_on_a_terminal_a_bulk_verb_asks(failed: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVAL_DATABASE_URL", failed.env["RIVAL_DATABASE_URL"])
    monkeypatch.setattr(bulk, "is_terminal", lambda: True)
    for answer, status in (("n\n", "failed"), ("\n", "failed"), ("y\n", "running")):
        told = CliRunner().invoke(operations.retry, ["--workflow", "job"], input=answer)
        assert len(lines_like(told.output, "retry 4 runs? [y/N]: …")) == 1, told.output
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
    bare("tree", "r/call:leaf", "--width", "2").prints(
        """
        run  workflow  status  took  started by
        r  top  completed  <duration>
        ├─ r/call:leaf  leaf  completed  <duration>  top/call:leaf  this run
        ├─ r/spawn:leaf  leaf  completed  <duration>  top/spawn:leaf  not awaited
        └─ … 3 more (3 completed)
        """
    )
    ended = {"version": "<version>", "status": "completed", "failed_step": None, "paused_at": None, "more": {}}
    ended |= {"created_at": "<time>", "started_at": "<time>", "completed_at": "<time>", "duration": "<seconds>"}
    child = {"workflow": "leaf", "parent_run_id": "r", "children": [], **ended}
    names = ["call:leaf", "spawn:leaf", *(f"spawn:leaf~{n}" for n in (2, 3, 4))]
    children = [
        child | {"run_id": f"r/{name}", "parent_path": f"top/{name}", "is_awaited": name == "call:leaf"}
        for name in names
    ]
    top = {"run_id": "r", "workflow": "top", "parent_run_id": None, "parent_path": None, "is_awaited": None, **ended}
    bare("tree", "r", "--json").prints_json(top | {"children": children})
    bare("tree", "r/call:leaf", "--below", "--json").prints_json(children[0])
    bare("tree", "nobody", code=1).complains("rival: Unknown run 'nobody'. `rival ls` lists the runs.")
