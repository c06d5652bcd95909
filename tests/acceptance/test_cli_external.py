"""External steps from a terminal: seen, completed, failed, and refused when it is too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rival_workers import create_workflow, embedded
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli
from tests.support.workers import wait_until

TOKENS: dict[str, str] = {}


def ask(ctx: Any, run: Any) -> None:
    TOKENS[run.run_id] = ctx.completion_token


def test_external_steps_are_completed_and_failed_from_a_terminal(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    create_workflow("order").step(ask, execution_mode="external", deadline=3600).register(registry)
    file = tmp_path / "runs.db"
    bare.env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    with embedded(file, registry=registry) as rival:
        for run_id in ("good", "bad"):
            rival.run("order", run_id=run_id)
            wait_until(lambda run_id=run_id: rival.state(run_id).status == "suspended")  # type: ignore[misc]
        rival.heartbeat_step(TOKENS["good"], {"done": 4, "of": 10})
        bare("show", "good").prints(
            """
            run  good
            workflow  order (version <version>)
            status  suspended
            at  ask
            created  <time>
            input  null

            step  status  attempts  queued  took
            ask  waiting  0  <duration>  for an external system until <time>; progress {"done": 4, "of": 10} (at <time>)
            """
        )
        [told] = bare("show", "good", "--json").json["steps"]
        assert (told["status"], told["kind"], told["progress"]) == ("waiting", "external", {"done": 4, "of": 10})

        bare("complete", TOKENS["good"], '{"price": 7}').prints("completed step ask of run good")
        failed = bare("fail", TOKENS["bad"], "out of stock", "--json")
        failed.prints_json({"run_id": "bad", "step": "ask", "accepted": True})
        wait_until(lambda: {one.status for one in rival.runs()} == {"completed", "failed"})
        assert rival.result("good").result == {"price": 7}
        assert (rival.result("bad").error or {})["message"] == "out of stock"

    late = "step ask of run {} does not wait for this token any more"
    bare("complete", TOKENS["good"], "8", code=1).prints(late.format("good"))
    bare("fail", TOKENS["bad"], "again", code=1).prints(late.format("bad"))
    refused = {"run_id": "good", "step": "ask", "accepted": False}
    bare("complete", TOKENS["good"], "8", "--json", code=1).prints_json(refused)
    bare("fail", TOKENS["bad"], "again", "--retry", "--json", code=1).prints_json(refused | {"run_id": "bad"})
    bare("complete", "nonsense", code=1).complains(
        "rival: This is not a token of an external step, or only a part of one. Give the whole text that "
        "`ctx.completion_token` has handed out; it begins with rvl_."
    )
