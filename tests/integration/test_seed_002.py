"""Every promise of the engine's seed (lifecycle, events, timers, children, recovery) on a real worker, or where it is shown.

| promise | where |
| --- | --- |
| every state and every verb | tests/contract/test_store_contract.py, against `engine/transitions.py` |
| sendEvent against handleSuspended | tests/contract/test_events.py: test_a_wait_that_begins_while_an_event_is_delivered_is_not_missed |
| resumeFromTimer against cancel | tests/contract/test_races.py: test_claim_and_cancel_in_either_order_end_cancelled |
| timeout against delivery | tests/contract/test_events.py: test_of_timeout_and_delivery_the_first_wins |
| precise timers | tests/integration/test_sleeping.py |
| cancel reaches children, also after a crash | tests/contract/test_children.py |
| continueAs keeps the tables flat | tests/contract/test_long_flows.py |
| a database that is away is tried again with backoff | tests/chaos/test_database.py |
| a crash at any point of suspend, deliver, resume, child, continue | tests/chaos/test_flows.py |
| the rest | here |
"""  # noqa: E501 - a table

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rival_client import Rival
from rival_client.settings import Settings
from tests.support.workers import Workers, wait_until

WORKFLOWS = """
import time
from pathlib import Path
from rival_workers import ChildFailed, create_workflow, flow

def note(file, word):
    with Path(file).open("a") as diary:
        diary.write(word + "\\n")
    return word

def hold(file):
    note(file, "holding")
    while not Path(file + ".go").exists():
        time.sleep(0.02)
    return "held"

@flow("waits")
def waits(ctx, input):
    return ctx.await_event(input["topic"], timeout=input.get("timeout"))

@flow("naps")
def naps(ctx, input):
    ctx.sleep(input["seconds"])
    return "rested"

@flow("lives")
def lives(ctx, input):
    ctx.step(hold, input["file"])
    ctx.await_event("go", key=ctx.run.id)
    ctx.step(hold, input["file"] + ".2")
    return "lived"

@flow("fails")
def fails(ctx, input):
    raise ValueError("no axe")

@flow("calls")
def calls(ctx, input):
    if not input.get("catch"):
        return ctx.call(input["child"], input.get("input"))
    try:
        return ctx.call(input["child"], input.get("input"))
    except ChildFailed as failed:
        return {"caught": failed.error["type"], "message": failed.error["message"]}

@flow("spawns")
def spawns(ctx, input):
    return ctx.spawn(input["child"], input.get("input"))

@flow("continues")
def continues(ctx, input):
    ctx.step(note, input["file"], str(input["n"]))
    return input["n"] if input["n"] == 5 else ctx.continue_as({**input, "n": input["n"] + 1})

@flow("works")
def works(ctx, input):
    ctx.step(note, input["file"], "first")
    ctx.step(hold, input["file"])
    return ctx.step(note, input["file"], "last")
"""


@pytest.fixture(scope="module")
def fleet(own_workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Workers:
    file = tmp_path_factory.mktemp("seed") / "workflows.py"
    file.write_text(WORKFLOWS)
    own_workers.start(file, concurrency=8)
    return own_workers


@pytest.fixture
def producer(own: Settings, fleet: Workers) -> Iterator[Rival]:
    with Rival(settings=own) as rival:
        yield rival


def reach(rival: Rival, run_id: str, status: str) -> None:
    wait_until(lambda: rival.state(run_id).status == status, 20, f"{run_id} {status}")


def waiting(rival: Rival, count: int = 1, **input: Any) -> tuple[str, list[str]]:
    """A topic of its own, and runs that wait for it."""
    topic = uuid.uuid4().hex
    ids = [rival.run("waits", {"topic": topic, **input}).run_id for _ in range(count)]
    for run_id in ids:
        reach(rival, run_id, "suspended")
    return topic, ids


def results(rival: Rival, ids: list[str]) -> list[Any]:
    return [rival.wait("waits", run_id, timeout=20).result for run_id in ids]


# -- lifecycle --------------------------------------------------------------------------------------------


def test_a_run_goes_from_running_to_suspended_to_running_and_succeeds(producer: Rival, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    run_id = producer.run("lives", {"file": str(file)}).run_id
    reach(producer, run_id, "running")
    Path(f"{file}.go").touch()
    reach(producer, run_id, "suspended")
    producer.send_event("go", key=run_id)
    reach(producer, run_id, "running")
    Path(f"{file}.2.go").touch()
    assert producer.wait("lives", run_id, timeout=20).result == "lived"


def test_cancel_ends_a_running_and_a_suspended_run_and_is_false_on_all_that_has_ended(
    producer: Rival, tmp_path: Path
) -> None:
    running = producer.run("lives", {"file": str(tmp_path / "diary")}).run_id
    wait_until(lambda: (tmp_path / "diary").exists())
    _, [suspended] = waiting(producer)
    failed = producer.run("fails", {}).run_id
    done = producer.run("naps", {"seconds": 0.01}).run_id
    assert (producer.wait("fails", failed, 20).status, producer.wait("naps", done, 20).status) == (
        "failed",
        "completed",
    )
    assert [producer.cancel(one) for one in (running, suspended)] == [True, True]
    assert [producer.cancel(one) for one in (running, suspended, failed, done)] == [False] * 4
    Path(tmp_path / "diary.go").touch()
    assert [producer.state(one).status for one in (running, suspended, failed, done)] == [
        "cancelled",
        "cancelled",
        "failed",
        "completed",
    ]


# -- events -----------------------------------------------------------------------------------------------


def test_an_event_is_consumed_by_one_run_or_broadcast_to_all_as_it_says(producer: Rival) -> None:
    topic, ids = waiting(producer, 2)
    producer.send_event(topic, 1)
    producer.send_event(topic, 2)
    assert sorted(results(producer, ids)) == [1, 2]
    topic, ids = waiting(producer, 3)
    producer.send_event(topic, "all", delivery="all")
    assert results(producer, ids) == ["all"] * 3


def test_an_event_that_no_step_waits_for_is_kept_and_an_expired_one_is_not(producer: Rival) -> None:
    kept, expired = uuid.uuid4().hex, uuid.uuid4().hex
    producer.send_event(kept, 1)
    producer.send_event(expired, 1, expires=0.05)
    wait_until(lambda: producer.events(topic=kept)[0].status == "kept")
    time.sleep(0.1)
    first = producer.run("waits", {"topic": kept}).run_id
    second = producer.run("waits", {"topic": expired, "timeout": 0.2}).run_id
    assert results(producer, [first, second]) == [1, None]


def test_an_event_for_a_run_that_has_just_ended_is_left_to_the_next(producer: Rival) -> None:
    """The seed's race of handleCompleted against sendEvent: a stale record is never used."""
    topic, [first] = waiting(producer)
    producer.send_event(topic, 1)
    assert results(producer, [first]) == [1]
    producer.send_event(topic, 2)
    wait_until(lambda: producer.events(topic=topic)[0].status == "kept")
    assert results(producer, [producer.run("waits", {"topic": topic}).run_id]) == [2]


# -- timers -----------------------------------------------------------------------------------------------


def test_a_timer_resumes_its_run_and_not_before_its_time(producer: Rival) -> None:
    began = time.monotonic()
    run_id = producer.run("naps", {"seconds": 0.5}).run_id
    reach(producer, run_id, "suspended")
    assert producer.wait("naps", run_id, timeout=20).result == "rested"
    assert time.monotonic() - began >= 0.5


# -- children ---------------------------------------------------------------------------------------------


def test_a_parent_gets_its_childs_result_and_may_catch_its_failure(producer: Rival) -> None:
    calls = [{"child": "naps", "input": {"seconds": 0.01}}, {"child": "fails", "input": {}, "catch": True}]
    ids = [producer.run("calls", its_input).run_id for its_input in calls]
    assert [producer.wait("calls", run_id, timeout=20).result for run_id in ids] == [
        "rested",
        {"caught": "ValueError", "message": "no axe"},
    ]


def test_a_childs_failure_that_is_not_caught_fails_its_parent(producer: Rival) -> None:
    run_id = producer.run("calls", {"child": "fails", "input": {}}).run_id
    result = producer.wait("calls", run_id, timeout=20)
    assert (result.status, result.failed_step) == ("failed", "calls")
    assert result.error is not None
    assert (result.error["type"], result.error["message"]) == (
        "ChildFailed",
        f"calls/call:fails: child run '{run_id}/call:fails' failed at step 'fails': ValueError: no axe",
    )


def test_a_child_that_is_not_awaited_is_independent(producer: Rival) -> None:
    topic = uuid.uuid4().hex
    slow = producer.run("spawns", {"child": "waits", "input": {"topic": topic}}).run_id
    bad = producer.run("spawns", {"child": "fails", "input": {}}).run_id
    ended = [producer.wait("spawns", run_id, timeout=20) for run_id in (slow, bad)]
    assert [one.status for one in ended] == ["completed", "completed"]
    assert producer.wait("fails", ended[1].result, timeout=20).status == "failed"
    assert producer.state(ended[0].result).parent_run_id == slow
    producer.send_event(topic, "now")
    assert producer.wait("waits", ended[0].result, timeout=20).result == "now"


# -- going on ---------------------------------------------------------------------------------------------


def test_a_run_continues_as_itself_with_another_input_and_a_fresh_history(producer: Rival, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    run_id = producer.run("continues", {"file": str(file), "n": 1}).run_id
    assert producer.wait("continues", run_id, timeout=20).result == 5
    assert file.read_text().split() == ["1", "2", "3", "4", "5"]
    assert [step.path for step in producer.state(run_id).steps] == ["continues", "continues/note"]


# -- recovery ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_came_due_while_everything_was_down_goes_on_when_a_worker_is_back(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    """A timer that passed, an event that arrived, and a step that was running when the fleet died."""
    source, file = tmp_path / "workflows.py", tmp_path / "diary"
    source.write_text(WORKFLOWS)
    [first] = workers.start(source, ring_grace=1)
    timer = rival.run("naps", {"seconds": 1.5}).run_id
    event = rival.run("waits", {"topic": "arrived"}).run_id
    running = rival.run("works", {"file": str(file)}).run_id
    reach(rival, timer, "suspended")
    reach(rival, event, "suspended")
    wait_until(lambda: file.exists() and file.read_text().split() == ["first", "holding"])
    first.kill()
    rival.send_event("arrived", 7)
    time.sleep(1.6)
    Path(f"{file}.go").touch()
    report = rival.recover()
    assert report.republished >= 1
    workers.start(source, ring_grace=1)
    assert rival.wait("naps", timer, timeout=20).result == "rested"
    assert rival.wait("waits", event, timeout=20).result == 7
    assert rival.wait("works", running, timeout=20).result == "last"
    assert file.read_text().split() == ["first", "holding", "holding", "last"], "what was committed is not done again"
