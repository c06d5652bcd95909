"""Queues and priorities of steps and runs: where messages go, and which worker may run what. A worker runs no step of a
queue that it does not serve: not by a message, not in place, not after an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rival_client import InvalidArgument
from rival_client.broker.message import StepMessage
from rival_client.model.starts.queues import Route, ServedQueues
from rival_workers import StepError, branch, delay_step, parallel, step, wait_event_step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.store.claim_records import Claim
from rival_workers.store.health import read_unserved_queues
from tests.support.inline import Clock, Inline
from tests.support.output import whole

Fleet = dict[str, Inline]


def ran() -> str:
    return "ran"


def broken() -> None:
    raise StepError("broken")


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Two workers on one database: one of the fleet's own queue, one of `gpu`."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    clock = Clock() if request.param == "sqlite" else None
    workers = {name: Inline(url, clock=clock, queues=queues) for name, queues in (("own", ""), ("gpu", "gpu"))}
    yield workers
    for worker in workers.values():
        worker.close()


def define(fleet: Fleet, *steps: Any, **options: Any) -> None:
    for worker in fleet.values():
        worker.define("w", *steps, **options)


def run_all(fleet: Fleet) -> dict[str, list[str]]:
    """Delivers each message to the worker of its queue. Which worker ran which steps."""
    own, gpu = fleet["own"], fleet["gpu"]
    while messages := [*own.doorbell.take(), *gpu.doorbell.take()]:
        for message in messages:
            fleet["gpu" if message.route.queue == "gpu" else "own"].deliver(message)
    return {name: _ran_by(own, worker.process.executor.id) for name, worker in fleet.items()}


def _ran_by(inline: Inline, executor: str) -> list[str]:
    runs = [run.run_id for run in inline.rival.runs()]
    entries = [entry for run_id in runs for entry in inline.rival.history(run_id)]
    return [entry.path or "" for entry in entries if entry.what == "claimed" and entry.by == executor]


def test_each_step_runs_on_a_worker_of_its_queue_and_continues_in_place_only_there(fleet: Fleet) -> None:
    names = [("a", None), ("b", "gpu"), ("c", "gpu"), ("d", None), ("e", "default")]
    define(fleet, *(step(ran, name=name, queue=queue) for name, queue in names))
    run_id = fleet["own"].rival.run("w").run_id
    assert run_all(fleet) == {"own": ["a", "d", "e"], "gpu": ["b", "c"]}
    assert fleet["own"].rival.result(run_id).status == "completed"


def test_lanes_conditions_handlers_and_waits_have_the_queue_of_their_step(fleet: Fleet) -> None:
    define(
        fleet,
        parallel("both", [step(ran, name="here"), step(ran, name="there", queue="gpu")]),
        branch("big?", when=lambda: True, then=[step(ran, name="then")], queue="gpu"),
        wait_event_step("paid", name="paid", key="1", queue="gpu"),
        step(broken, name="last", queue="gpu", on_error=ran, compensate=ran),
    )
    own = fleet["own"].rival
    run_id = own.run("w").run_id
    run_all(fleet)
    own.send_event("paid", key="1")
    found = run_all(fleet)
    assert own.result(run_id).status == "failed"
    assert sorted(found["gpu"]) == ["big?!when", "both/there", "last", "last!on_error", "paid"]
    assert sorted(found["own"]) == ["big?/then", "both/here"]


def test_an_inline_step_runs_in_place_only_on_a_worker_of_its_queue(fleet: Fleet) -> None:
    names = [("a", None, "durable"), ("b", None, "inline"), ("c", "gpu", "durable"), ("d", None, "inline")]
    for worker in fleet.values():
        object.__setattr__(worker.coordinator.settings, "continuation_budget", 0.0)
    define(fleet, *(step(ran, name=name, queue=queue, execution_mode=mode) for name, queue, mode in names))  # type: ignore[arg-type]
    own = fleet["own"].rival
    run_id = own.run("w").run_id
    assert run_all(fleet) == {"own": ["a", "b", "d"], "gpu": ["c"]}
    published = [entry.path for entry in own.history(run_id) if entry.what == "scheduled"]
    assert sorted(map(str, published)) == ["a", "c", "d"]


def test_a_message_on_the_wrong_queue_has_no_effect(fleet: Fleet) -> None:
    define(fleet, step(ran, name="a", queue="gpu"))
    own = fleet["own"]
    run_id = own.rival.run("w").run_id
    [start] = own.doorbell.take()
    own.deliver(start)
    [message] = own.doorbell.take()
    assert message.route == Route("gpu")
    assert own.deliver(message).what == "stale"  # type: ignore[union-attr]
    assert own.store.claim_step(Claim(run_id, "a", message.token), None, "e1") is None
    assert fleet["gpu"].deliver(message).what == "completed"  # type: ignore[union-attr]
    assert own.rival.state(run_id).steps[0].queue == "gpu"


def test_a_worker_of_another_queue_leaves_the_fleets_own_steps_alone(fleet: Fleet) -> None:
    define(fleet, step(ran, name="a"), step(ran, name="b"))
    gpu = fleet["gpu"]
    gpu.rival.run("w")
    [start] = gpu.doorbell.take()
    gpu.deliver(start)
    [message] = gpu.doorbell.take()
    assert gpu.deliver(message).what == "stale"  # type: ignore[union-attr]
    assert fleet["own"].deliver(message).what == "completed"  # type: ignore[union-attr]


def test_a_keeper_publishes_for_queues_that_its_worker_does_not_serve(fleet: Fleet) -> None:
    define(fleet, step(ran, name="a", queue="gpu", max_attempts=2))
    own = fleet["own"]
    own.rival.run("w")
    own.deliver(own.doorbell.take()[0])
    own.doorbell.take()
    own.time_passes(11)
    own.keeper.run_once()
    [message] = own.doorbell.take()
    assert (message.path, message.route) == ("a", Route("gpu"))


@pytest.mark.parametrize("how", ["retry", "release", "resume", "rewind"])
def test_every_message_of_a_step_goes_to_its_queue(fleet: Fleet, how: str) -> None:
    def once(ctx: Any) -> str:
        if ctx.run.attempt == 1 and how == "retry":
            raise StepError("again", behavior="retry", max_attempts=2, backoff="none")
        return "ran"

    define(fleet, step(once, name="a", queue="gpu", priority="low"))
    own, gpu = fleet["own"].rival, fleet["gpu"]
    run_id = own.run("w").run_id
    fleet["own"].deliver(fleet["own"].doorbell.take()[0])
    [message] = fleet["own"].doorbell.take()
    if how == "release":
        claimed = gpu.store.claim_step(Claim(run_id, "a", message.token), None, gpu.process.executor.id)
        assert claimed is not None
        gpu.process.hand_back(gpu.process.executor.id)
    elif how == "resume":
        own.pause(run_id, by="ana")
        own.resume(run_id, by="ana")
    else:
        gpu.deliver(message)
    if how == "rewind":
        own.rewind(run_id, "a", by="ana")
    published = [*gpu.doorbell.take(), *fleet["own"].doorbell.take()]
    assert [one.route for one in published] == [Route("gpu", 1)]


# -- priority -------------------------------------------------------------------------------------------------


def test_a_run_gives_its_priority_to_the_steps_that_have_none(inline: Inline) -> None:
    inline.coordinator.stopping = True
    inline.define("w", step(ran, name="a"), step(ran, name="b", priority="low"), step(ran, name="c"))
    run_id = inline.rival.run("w", priority="high").run_id
    levels = [message.route.level for message in inline.drain()]
    assert levels == [-1, -1, 1, -1]
    state = inline.rival.state(run_id)
    assert (state.priority, [one.priority for one in state.steps]) == ("high", [None, "low", None])
    assert inline.rival.history(run_id)[0].detail["options"] == {"priority": "high"}


def test_without_priorities_no_message_says_anything_about_them(inline: Inline) -> None:
    inline.coordinator.stopping = True
    inline.define("w", step(ran, name="a"))
    inline.rival.run("w")
    assert [len(message.args) for message in inline.drain()] == [5, 5]


@pytest.mark.parametrize("priority", ["urgent", 1, ""], ids=repr)
def test_an_unknown_priority_is_refused(inline: Inline, priority: Any) -> None:
    inline.define("w", step(ran))
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument priority: … is not a priority: give one of high, normal, low.")
    ):
        inline.rival.run("w", priority=priority)


def looked_at(inline: Inline, rounds: int) -> list[list[int]]:
    """The levels that each round of the keeper publishes at, while no worker takes anything."""
    found = []
    for _ in range(rounds):
        inline.time_passes(10_000)
        inline.keeper.run_once()
        found.append([message.route.level for message in inline.doorbell.take()])
    return found


def test_a_low_step_rises_level_by_level_while_the_queue_has_a_backlog(inline: Inline) -> None:
    inline.doorbell.has_priorities, inline.doorbell.age = True, 10**9
    inline.define("w", step(ran, name="a"))
    inline.rival.run("w", priority="low")
    assert [message.route.level for message in inline.doorbell.take()] == [1]
    assert looked_at(inline, 5) == [[], [], [0], [-1], []]


def test_a_normal_step_rises_only_past_high_ones_that_wait(inline: Inline) -> None:
    inline.doorbell.has_priorities, inline.doorbell.age = True, 10**9
    inline.define("w", step(ran, name="a"))
    inline.rival.run("w")
    inline.doorbell.take()
    assert looked_at(inline, 4) == [[], [], [], [-1]]


def test_without_lists_for_priorities_nothing_rises(inline: Inline) -> None:
    inline.doorbell.age = 10**9
    inline.define("w", step(ran, name="a"))
    inline.rival.run("w", priority="low")
    inline.doorbell.take()
    assert looked_at(inline, 5) == [[], [], [], [], []]


# -- of a whole workflow --------------------------------------------------------------------------------------


def test_a_workflow_gives_its_queue_to_its_runs_and_to_all_steps_without_their_own(fleet: Fleet) -> None:
    inner = define_workflow("inner", [step(ran, name="x"), step(ran, name="y", queue="default")])
    cpu = define_workflow("cpu", [step(ran, name="z")], queue="default")
    steps = [
        step(ran, name="a"),
        step(ran, name="own", queue="default"),
        branch("big?", when=lambda: True, then=[step(ran, name="then")]),
        delay_step(seconds=0, name="pause"),
        workflow(inner),
        workflow(cpu),
        step(broken, name="last", on_error=ran),
    ]
    define(fleet, *steps, queue="gpu", on_error=ran)
    run_id = fleet["own"].rival.run("w").run_id
    found = run_all(fleet)
    assert found["own"] == ["own", "inner/y", "cpu/z"]
    assert set(found["gpu"]) == {
        *("a", "big?!when", "big?/then", "pause", "inner/x", "last", "last!on_error", "!on_error")
    }
    run = fleet["own"].rival.state(run_id)
    assert (run.status, run.queue) == ("failed", "gpu")
    explained = {one.name: one for one in fleet["own"].rival.explain_policy(run_id, "a").fields}
    assert (explained["queue"].value, explained["queue"].because) == ("gpu", "the workflow's own")


def test_rules_come_over_the_queue_of_the_workflow_also_without_its_other_options(fleet: Fleet) -> None:
    define(fleet, step(ran, name="a"), step(ran, name="b"), queue="gpu")
    own = fleet["own"].rival
    own.run("w", run_id="merged", policies=[("a", {"queue": "default"})])
    own.run("w", run_id="replaced", policies=[("a", {"timeout": 5})], policies_mode="replace")
    run_all(fleet)
    queues = {run_id: [one.queue for one in own.state(run_id).steps] for run_id in ("merged", "replaced")}
    assert queues == {"merged": ["default", "gpu"], "replaced": ["gpu", "gpu"]}


def test_the_priority_of_a_workflow_is_that_of_its_runs_unless_a_start_gives_another(inline: Inline) -> None:
    nested = define_workflow("nested", [step(ran, name="x")], priority="high")
    inline.define("w", step(ran, name="a"), step(ran, name="b", priority="normal"), workflow(nested), priority="low")
    inline.rival.run("w", run_id="usual")
    inline.rival.run("w", run_id="urgent", priority="high")
    inline.rival.schedule("w", 3600, name="s")
    levels = {message.run_id: message.route.level for message in inline.doorbell.messages}
    assert levels == {"usual": 1, "urgent": -1}
    inline.drain()
    assert [inline.rival.state(one).priority for one in ("usual", "urgent")] == ["low", "high"]
    rows = {one.path: one.priority for one in inline.rival.state("usual").steps}
    assert (rows["a"], rows["b"], rows["nested/x"]) == (None, "normal", "high"), "a run gives its priority to its steps"
    assert inline.rival.registry.get("w").priority == "low"


def test_another_queue_of_a_workflow_is_not_another_version(inline: Inline) -> None:
    before = inline.define("w", step(ran, name="a"), queue="gpu", priority="low")
    after = inline.define("v", step(ran, name="a"))
    assert before.version == after.version
    inline.process.announce(define_workflow("w", [step(ran, name="a")]))
    found = inline.rival.registry.get("w")
    assert (found.queue, found.priority, found.policies) == (None, None, {})


# -- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "served", "not_served"),
    [
        ((), [None, "default"], ["gpu"]),
        (("gpu",), ["gpu"], [None, "default"]),
        (("default", "gpu"), [None, "gpu"], ["cpu"]),
        (("rival", "gpu"), [None, "default", "gpu"], ["rival"]),
    ],
)
def test_default_is_the_name_of_the_fleets_own_queue(
    names: tuple[str, ...], served: list[str | None], not_served: list[str | None]
) -> None:
    queues = ServedQueues(names, "rival")
    assert [name in queues for name in served] == [True] * len(served)
    assert [name in queues for name in not_served] == [False] * len(not_served)


def test_a_message_keeps_its_route_when_it_is_read_again() -> None:
    from rival_workers.runtime.celery.untrusted_messages import read_call

    sent = StepMessage("r", "a", 3, "w", "1", route=Route("gpu", 1))
    assert read_call("rival.attempt", [sent.args, {}, {}], {}) == sent


def test_queues_for_which_runs_or_steps_wait_and_that_no_worker_serves_are_found(inline: Inline) -> None:
    inline.define("whole", step(ran, name="first"), queue="gpu")
    inline.define("part", step(ran, name="first"), step(ran, name="second", queue="tape"))
    inline.define("served", step(ran, name="first"))
    inline.rival.run("whole", {}, "later", delay=600)
    inline.rival.run("served", {}, "own")
    inline.rival.run("part", {}, "part")
    inline.drain()
    inline.rival.run("served", {}, "waits")
    found = {one.queue: one.example for one in read_unserved_queues(inline.store.database)}
    assert found == {"tape": "run part step second"}
    inline.rival.run("whole", {}, "now")
    found = {one.queue: one.example for one in read_unserved_queues(inline.store.database)}
    assert found == {"gpu": "run now", "tape": "run part step second"}
