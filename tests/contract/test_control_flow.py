"""Every composite on SQLite, in process: each message delivered by hand, in order, shuffled and twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client.broker.message import StepMessage
from rival_workers import for_each, step, wait_event_step
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.workflow import WorkflowDefinition
from tests.support import gallery
from tests.support.effort import long_but_first
from tests.support.gallery import CASES, assert_as_expected
from tests.support.inline import Clock, Inline


@pytest.fixture(params=[1.0, pytest.param(0.0, marks=pytest.mark.slow)], ids=["in place", "by messages"])
def inline(request: pytest.FixtureRequest, file_url: str) -> Iterator[Inline]:
    opened = Inline(file_url, clock=Clock(), continuation_budget=request.param)
    yield opened
    opened.close()


def register(inline: Inline, *workflows: WorkflowDefinition | None) -> None:
    for workflow in workflows:
        assert workflow is not None
        inline.registry.add(workflow)
    inline.process.register_workflows()


def settle(inline: Inline, order: random.Random | None = None, copies: int = 1) -> None:
    """Until no message is left and nothing is due."""
    for _ in range(1000):
        published = inline.doorbell.take()
        if not published and not inline.later:
            return
        inline.later += [(inline.clock() + message.countdown, message) for message in published for _ in range(copies)]  # type: ignore[misc]
        if order is not None:
            order.shuffle(inline.later)
        index = next((n for n, (at, _) in enumerate(inline.later) if at <= inline.clock()), None)  # type: ignore[misc]
        if index is None:
            inline.clock.advance(1)  # type: ignore[union-attr]
            continue
        inline.deliver(inline.later.pop(index)[1])
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("name", CASES)
def test_control_flow_goes_as_it_is_written(inline: Inline, name: str) -> None:
    case = CASES[name]
    register(inline, default_registry.newest(case.workflow))
    run_id = inline.rival.run(case.workflow, case.input).run_id
    settle(inline)
    assert_as_expected(case, inline.rival.state(run_id))


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but_first(*range(2)))
def test_order_and_copies_of_messages_change_nothing(inline: Inline, seed: int) -> None:
    register(inline, *default_registry)
    runs: dict[str, Any] = {name: inline.rival.run(case.workflow, case.input).run_id for name, case in CASES.items()}
    settle_all(inline, random.Random(seed))
    for name, run_id in runs.items():
        assert_as_expected(CASES[name], inline.rival.state(run_id))


def settle_all(inline: Inline, order: random.Random) -> None:
    """Every message twice, the copies in any order."""
    waiting: list[StepMessage] = []
    while waiting or inline.doorbell.messages:
        waiting += [message for message in inline.doorbell.take() for _ in range(2)]
        inline.clock.advance(0.1)  # type: ignore[union-attr]
        inline.deliver(waiting.pop(order.randrange(len(waiting))))


def test_the_gallery_is_all_registered() -> None:
    assert {case.workflow for case in CASES.values()} <= {workflow.name for workflow in default_registry}
    assert gallery.CASES


@pytest.mark.parametrize(("on_failure", "other"), [("cancel", "cancelled"), ("wait", "completed")])
def test_the_item_that_failed_is_distinguished_from_those_that_were_cancelled(
    inline: Inline, on_failure: Any, other: str
) -> None:
    def work(item: int) -> int:
        return 60 // item

    inline.define(
        "w",
        for_each(
            "l", items=lambda: [1, 0], do=[step(work), wait_event_step("go")], concurrency=2, on_failure=on_failure
        ),
    )
    inline.rival.run("w", run_id="r")
    settle(inline)
    inline.rival.send_event("go")
    settle(inline)
    state = inline.rival.state("r")
    assert (state.status, state.failed_step) == ("failed", "l[1]/work")
    items = {one.path: one.status for one in state.steps if one.path in ("l[0]", "l[1]", "l[1]/work")}
    assert items == {"l[0]": other, "l[1]": "failed", "l[1]/work": "failed"}
    inline.rival.retry("r")
    again = {one.path: one.status for one in inline.rival.state("r").steps}
    assert (again["l"], again["l[1]"]) == ("waiting", "waiting")
