"""Composites in a lab: what is said of a step reaches it wherever it stands, by name or by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rival_workers import StepError, branch, create_workflow, for_each, loop, parallel, step, workflow
from rival_workers.testing import Lab, LabError
from tests.support.effort import examples
from tests.support.output import whole

BUSY = StepError("busy", behavior="retry")


@pytest.fixture(params=[True, False], ids=["continuation", "message-per-attempt"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab(continuation=request.param) as opened:
        yield opened


def pack(item: int) -> int:
    return item * 10


def lines(lab: Lab, **options: Any) -> None:
    retried = step(pack, max_attempts=3, base_delay=60, max_delay=60, timeout=30)
    lab.register([for_each("lines", items=lambda: [1, 2, 3, 4], do=[retried], **options)], name="lines")


def test_a_name_means_the_steps_of_all_items(lab: Lab) -> None:
    lines(lab, concurrency=2)
    lab.replace("pack", lambda item, index: [item, index])
    assert lab.run("lines").result == [[1, 0], [2, 1], [3, 2], [4, 3]]


@pytest.mark.parametrize("where", ["lines[]/pack", "pack"])
def test_each_item_fails_for_itself(lab: Lab, where: str) -> None:
    lines(lab)
    lab.fail(where, times=1, error=BUSY)
    run = lab.run("lines")
    assert run.result == [10, 20, 30, 40]
    assert [run.step(f"lines[{n}]/pack").attempts for n in range(4)] == [2, 2, 2, 2]
    assert len(run.attempts_of("pack")) == 8
    assert run.seconds == 4 * 60


def test_a_path_means_one_item(lab: Lab) -> None:
    lines(lab, on_failure="continue")
    lab.replace("lines[1]/pack", lambda: "one")
    lab.fail("lines[2]/pack", error=ValueError("broken"))
    lab.crash("lines[3]/pack")
    run = lab.run("lines")
    assert run.result == [10, "one", None, 40]
    assert run.step("lines[3]/pack").lost == 1


def test_which_item_must_be_said_when_one_is_asked_for(lab: Lab) -> None:
    lines(lab)
    with pytest.raises(
        LabError,
        match=whole(
            "'pack' in run '…': matches more than one step: lines[0]/pack, lines[1]/pack, lines[2]/pack, lines[3]/pack."
        ),
    ):
        lab.run("lines").step("pack")


def test_an_item_is_timed_out(lab: Lab) -> None:
    lines(lab)
    lab.time_out("lines[1]/pack")
    run = lab.run("lines")
    run.assert_failed(step="lines[1]/pack", error="StepTimeout")
    run.assert_never_ran("lines[2]/pack")
    assert run.seconds == 30


def test_the_items_themselves_can_be_replaced(lab: Lab) -> None:
    lines(lab)
    lab.replace("lines!items", lambda: [7])
    assert lab.run("lines").result == [70]


def test_a_replaced_condition_selects_the_other_branch(lab: Lab) -> None:
    def good() -> str:
        return "good"

    def bad() -> str:
        return "bad"

    lab.register([branch("valid?", when=lambda: True, then=[good], otherwise=[bad])], name="w")
    assert lab.run("w").result == "good"
    lab.replace("valid?!when", lambda: False)
    run = lab.run("w")
    assert run.result == "bad"
    run.assert_never_ran("good")


def test_parallel_lanes_wait_for_the_one_that_is_retried(lab: Lab) -> None:
    def email() -> str:
        return "email"

    def sms() -> str:
        return "sms"

    lanes = parallel("notify", [step(email, max_attempts=2, base_delay=3600, max_delay=3600), sms])
    lab.register([lanes, step(lambda: "done", name="done")], name="w")
    lab.fail("notify/email", error=BUSY)
    run = lab.run("w")
    assert (run.results["notify"], run.seconds) == ({"email": "email", "sms": "sms"}, 3600)
    paths = [entry.path for entry in run.timeline]
    assert paths == [None, "notify/email", "notify/sms", "notify/email", "notify", "done", None]


def test_the_iterations_of_a_loop_are_steps_of_their_own(lab: Lab) -> None:
    def page(index: int) -> int:
        return index

    lab.register([loop("pages", do=[page], until=lambda last_step: last_step.result == 3)], name="w")
    lab.crash("pages[2]/page")
    run = lab.run("w")
    assert run.result == 3
    assert [step.lost for step in run.state.steps if step.path.endswith("page")] == [0, 0, 1, 0]
    lab.replace("pages[]!until", lambda: True)
    assert lab.run("w").result == 0


def test_a_nested_workflow_s_steps_are_reached_by_the_end_of_their_path(lab: Lab) -> None:
    def charge() -> str:
        return "charged"

    payment = create_workflow("payment").step(charge, max_attempts=2, base_delay=60, max_delay=60)
    outer = create_workflow("outer").step(charge, name="other").workflow(payment)
    lab.register(outer)
    lab.register([workflow(outer)], name="outermost")
    lab.fail("payment/charge", error=BUSY)
    assert lab.run("outer").seconds == 60
    run = lab.run("outermost")
    run.assert_attempts("outer/payment/charge", 2)
    run.assert_attempts("other", 1)


def test_a_handler_can_be_replaced_and_asked_about(lab: Lab) -> None:
    def charge() -> str:
        return "charged"

    seen: list[str] = []
    lab.register([step(charge, on_error=lambda error: None)], name="w", on_error=lambda error: None)
    lab.replace("charge!on_error", lambda error, failed_step: seen.append(error["message"]))
    lab.fail("charge", error=ValueError("declined"))
    run = lab.run("w")
    assert seen == ["declined"]
    assert [entry.path for entry in run.timeline] == [None, "charge", "charge!on_error", "!on_error", None]


# -- order and duplicates ---------------------------------------------------------------------------------


def everything(lab: Lab) -> None:
    """A bit of each, with retries, a crash and a timeout."""
    retried = step(pack, max_attempts=3, base_delay=60, max_delay=60)
    label = step(lambda item: item, name="label")
    slow = step(lambda: "slow", name="slow", timeout=10, on_timeout="retry", max_attempts=2)
    lab.register(
        [
            for_each("lines", items=lambda: range(5), do=[retried, label], concurrency=3),
            parallel("notify", [[step(lambda: 1, name="a"), step(lambda: 2, name="b")], slow]),
            loop("pages", do=[step(lambda index: index, name="page")], until=lambda index: index == 2),
            branch("more?", when=lambda: True, then=[step(lambda: "more", name="more")]),
        ],
        name="everything",
    )
    lab.fail("lines[1]/pack", times=2, error=BUSY)
    lab.crash("lines[3]/pack")
    lab.time_out("slow")
    lab.crash("pages[1]/page", after=True)


def outcome(lab: Lab) -> Any:
    everything(lab)
    runs = [lab.start("everything") for _ in range(3)]
    for run in runs:
        run.finish().assert_completed()
    return [
        (run.results, sorted((step.path, step.status, step.attempts, step.lost) for step in run.state.steps))
        for run in runs
    ]


@pytest.fixture(scope="module")
def expected() -> Any:
    with Lab() as lab:
        return outcome(lab)


@pytest.mark.parametrize("seed", range(examples(2)))
def test_neither_order_nor_duplicates_change_anything(expected: Any, seed: int) -> None:
    with Lab(shuffle=seed, duplicate=True, continuation=bool(seed % 2)) as lab:
        assert outcome(lab) == expected


def test_a_shuffled_lab_delivers_in_another_order_and_one_seed_always_in_the_same() -> None:
    def order_of(**options: Any) -> list[int]:
        seen: list[int] = []
        with Lab(continuation=False, **options) as lab:
            lanes = [step(lambda n=n: seen.append(n), name=f"lane{n}") for n in range(8)]
            lab.register([parallel("lanes", lanes)], name="w")
            lab.run("w")
        return seen

    assert order_of() == list(range(8))
    assert order_of(shuffle=1) == order_of(shuffle=1) != order_of()


def test_each_message_of_a_duplicating_lab_comes_twice_and_runs_once() -> None:
    calls: list[int] = []
    with Lab(duplicate=True, continuation=False) as lab:
        lab.register([step(lambda: calls.append(1), name="one")], name="w")
        run = lab.start("w")
        assert lab._world.broker.backlog() == 2
        run.finish()
        lab.advance(3600)
    assert calls == [1]
