"""The test that the dashboard makes of a run passes in a lab."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

from rival_client.sql.reads.event_reads import received_events
from rival_client.sql.reads.state_reads import read_state
from rival_client.sql.reads.step_pages import step_results
from rival_workers import StepFailed, flow, step, wait_event_step
from rival_workers.dashboard.api.run_files import as_test
from rival_workers.dashboard.veil import Veil
from rival_workers.testing import Lab

REAL = {"reached": False, "fails": False}


def work(n: int) -> int:
    if REAL["fails"]:
        raise RuntimeError("down")
    REAL["reached"] = True
    return n * 2


def work_after(steps: Any) -> int:
    return work(steps.w.result["n"])


def ask(input: Any) -> int:
    return work(input)


@flow("parent", register=False)
def parent(ctx: Any, input: int) -> Any:
    try:
        return [ctx.step(work, input), ctx.step(work, input + 1)]
    except StepFailed:
        return "none"


@flow("sleeper", register=False)
def sleeper(ctx: Any, input: Any) -> Any:
    ctx.step(work, 1)
    ctx.sleep(3600)


@flow("asker", register=False)
def asker(ctx: Any, input: Any) -> Any:
    return [ctx.await_event("first", timeout=60), ctx.step(work, 1), ctx.await_event("second", timeout=3600)]


def opened() -> Lab:
    lab = Lab()
    lab.register([parent], name="parent")
    lab.register([sleeper], name="sleeper")
    lab.register([asker], name="asker")
    lab.register([wait_event_step("reply", name="w", key="k"), work_after], name="waiter")
    lab.register([ask, step(lambda: 5, name="five")], name="plan")
    return lab


def exported(lab: Lab, run_id: str) -> str:
    with lab.rival.database.snapshot() as connection:
        state = read_state(connection, run_id, None)
        events = received_events(connection, run_id, 100)
        text: str = as_test(state, step_results(connection, run_id, 100), Veil(), events)["text"]
    return text


def a_test_of(run_id: str, workflow: str, *lines: str) -> str:
    return "\n".join(
        [
            f'"""Run {run_id} of workflow {workflow}, as a test."""',
            "",
            "",
            f"def test_{run_id}(rival_lab):",
            "    # rival_lab.register(...): the workflow, if its file is not registered already.",
            *(f"    {line}" for line in lines),
            "",
        ]
    )


OPEN = "# The run had not ended, so the test does not check its end."


def passes(text: str, folder: Path) -> None:
    REAL["reached"], REAL["fails"] = False, False
    file = folder / "test_exported.py"
    file.write_text(text)
    [test] = [value for name, value in run_path(str(file)).items() if name.startswith("test_")]
    with opened() as lab:
        test(lab)
    assert not REAL["reached"]


def test_of_a_flow(tmp_path: Path) -> None:
    with opened() as lab:
        run_id = lab.run("parent", 1).run_id
        text = exported(lab, run_id)
    assert text == a_test_of(
        run_id,
        "parent",
        "rival_lab.replace('parent/work', lambda: 2)",
        "rival_lab.replace('parent/work~2', lambda: 4)",
        "run = rival_lab.run('parent', 1)",
        "assert run.status == 'completed'",
        "assert run.result == [2, 4]",
    )
    passes(text, tmp_path)


def test_of_failed_steps_of_a_plan_and_of_a_flow(tmp_path: Path) -> None:
    REAL["fails"] = True
    with opened() as lab:
        plan, flow = lab.run("plan", 1), lab.run("parent", 1)
        assert (plan.status, flow.result) == ("failed", "none")
        texts = [exported(lab, plan.run_id), exported(lab, flow.run_id)]
    assert texts[0] == a_test_of(
        plan.run_id,
        "plan",
        "rival_lab.fail('ask', times=None)",
        "run = rival_lab.run('plan', 1)",
        "assert run.status == 'failed'",
    )
    assert texts[1] == a_test_of(
        flow.run_id,
        "parent",
        "rival_lab.fail('parent/work', times=None)",
        "run = rival_lab.run('parent', 1)",
        "assert run.status == 'completed'",
        "assert run.result == 'none'",
    )
    for text in texts:
        passes(text, tmp_path)


def test_of_runs_that_received_events(tmp_path: Path) -> None:
    with opened() as lab:
        flow = lab.start("asker")
        lab.send_event("first", {"n": 1})
        lab.advance(1)
        lab.send_event("second", {"n": 2})
        plan = lab.start("waiter")
        lab.send_event("reply", {"n": 3}, key="k")
        open_still = lab.start("asker")
        lab.send_event("first", "f", run_id=open_still.run_id)
        lab.advance(1)
        assert (flow.finish().result, plan.finish().result) == ([{"n": 1}, 2, {"n": 2}], 6)
        texts = [exported(lab, run.run_id) for run in (flow, plan, open_still)]
    assert texts[0] == a_test_of(
        flow.run_id,
        "asker",
        "rival_lab.replace('asker/work', lambda: 2)",
        "run = rival_lab.start('asker', None)",
        "rival_lab.send_event('first', {'n': 1}, run_id=run.run_id)",
        "rival_lab.send_event('second', {'n': 2}, run_id=run.run_id)",
        "run.finish()",
        "assert run.status == 'completed'",
        "assert run.result == [{'n': 1}, 2, {'n': 2}]",
    )
    assert texts[1] == a_test_of(
        plan.run_id,
        "waiter",
        "rival_lab.replace('work_after', lambda: 6)",
        "run = rival_lab.start('waiter', None)",
        "rival_lab.send_event('reply', {'n': 3}, key='k', run_id=run.run_id)",
        "run.finish()",
        "assert run.status == 'completed'",
        "assert run.result == 6",
    )
    assert texts[2] == a_test_of(
        open_still.run_id,
        "asker",
        "rival_lab.replace('asker/work', lambda: 2)",
        OPEN,
        "run = rival_lab.start('asker', None)",
        "rival_lab.send_event('first', 'f', run_id=run.run_id)",
    )
    for text in texts:
        passes(text, tmp_path)


def test_of_a_cancelled_run_and_of_one_that_has_not_ended(tmp_path: Path) -> None:
    with opened() as lab:
        run = lab.start("sleeper")
        lab.advance(60)
        still_open = exported(lab, run.run_id)
        run.cancel()
        run.finish().assert_cancelled()
        cancelled = exported(lab, run.run_id)
    passes(cancelled, tmp_path)
    passes(still_open, tmp_path)
    begin = ("rival_lab.replace('sleeper/work', lambda: 2)", OPEN, "run = rival_lab.start('sleeper', None)")
    assert still_open == a_test_of(run.run_id, "sleeper", *begin)
