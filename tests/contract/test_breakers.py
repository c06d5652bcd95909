"""Circuit breakers: when they open, what their steps do meanwhile, and the one attempt that probes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from rival_client import AsyncRival, InvalidArgument
from rival_client.db import conflict_retries
from rival_client.model.policies.breakers import Breaker
from rival_client.sql.breakers import list_breakers, open_breaker, reset_breaker
from rival_workers import DefinitionError, StepError, breaker, flow, retry_with, step, value
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.store.call_records import BreakerAnswer
from rival_workers.store.claim_records import Claim
from rival_workers.store.sweep_records import SweepOptions
from tests.contract.stage import SOON, Stage
from tests.support.effort import examples
from tests.support.inline import Inline
from tests.support.interleaving import interleaved

MODEL = {"works": False}
CALLS: list[str] = []


def ask(run: Any) -> str:
    CALLS.append(run.run_id)
    if not MODEL["works"]:
        raise TimeoutError("busy")
    return "answer"


@pytest.fixture(autouse=True)
def fresh() -> None:
    MODEL["works"] = False
    CALLS.clear()


def define(inline: Inline, on_open: Any = "fail", **options: Any) -> None:
    how: dict[str, Any] = {"failures": 2, "reset": 60, "on_open": on_open, **options.pop("breaker", {})}
    inline.define("llm", step(ask, circuit_breaker=breaker("openai", **how), **options))


def run(inline: Inline, run_id: str) -> Any:
    inline.rival.run("llm", {}, run_id=run_id)
    inline.drain()
    return inline.rival.result(run_id) if inline.rival.state(run_id).is_terminal else None


def state(inline: Inline) -> str:
    [one] = inline.rival.breakers()
    return one.state


def time_passes(inline: Inline, seconds: float = 61) -> None:
    """The clock goes on; where it cannot be set, everything that has happened is put back instead."""
    if inline.clock is not None:
        inline.clock.advance(seconds)
        return
    with inline.store.database.transaction() as connection:
        for table, column in (
            ("breakers", "until"),
            ("breaker_failures", "bucket"),
            ("steps", "due_at"),
            ("steps", "ring_at"),
        ):
            change = f"UPDATE rival_{table} SET {column} = {column} - make_interval(secs => :seconds)"
            connection.execute(text(change), {"seconds": seconds})


def test_a_breaker_opens_after_so_many_failures_and_stops_the_next_call_anywhere(inline: Inline) -> None:
    define(inline)
    assert run(inline, "a").error["type"] == "TimeoutError"
    assert state(inline) == "closed"
    run(inline, "b")
    assert state(inline) == "open"
    refused = run(inline, "c")
    assert (refused.error["type"], refused.error["breaker"]) == ("BreakerOpen", "openai")
    assert CALLS == ["a", "b"]
    moved = [entry.detail for entry in inline.rival.history("b") if entry.what == "breaker"]
    assert moved == [{"name": "openai", "state": "open"}]


def test_a_probe_that_succeeds_closes_the_breaker_and_one_that_fails_opens_it_for_longer(inline: Inline) -> None:
    define(inline)
    for run_id in ("a", "b"):
        run(inline, run_id)
    time_passes(inline)
    assert run(inline, "probe").error["type"] == "TimeoutError"
    [one] = inline.rival.breakers()
    assert (one.state, one.opened) == ("open", 2)
    assert run(inline, "early").error["type"] == "BreakerOpen"
    time_passes(inline, 121)
    MODEL["works"] = True
    assert run(inline, "good").result == "answer"
    [one] = inline.rival.breakers()
    assert (one.state, one.opened, one.failures) == ("closed", 0, 0)


def test_several_probes_must_succeed_if_the_breaker_says_so(inline: Inline) -> None:
    define(inline, breaker={"successes": 2})
    for run_id in ("a", "b"):
        run(inline, run_id)
    time_passes(inline)
    MODEL["works"] = True
    run(inline, "one")
    assert state(inline) == "half_open"
    run(inline, "two")
    assert state(inline) == "closed"


@pytest.mark.parametrize(
    ("on_open", "options", "expected"),
    [
        ("skip", {}, ("completed", None)),
        ("fallback", {"fallback": value("cached")}, ("completed", "cached")),
        ("fail", {"fallback": value("cached")}, ("completed", "cached")),
        ("fail", {"on_failure": "skip"}, ("completed", None)),
        ("skip", {"fallback": value("cached")}, ("completed", None)),
    ],
)
def test_a_step_that_is_not_called_does_what_on_open_says(
    inline: Inline, on_open: str, options: Any, expected: Any
) -> None:
    define(inline, on_open, **options)
    inline.rival.open_breaker("openai")
    found = run(inline, "r")
    assert (found.status, found.result) == expected
    assert CALLS == []


def ask_any(ctx: Any) -> str:
    model = ctx.overrides.get("model", "large")
    CALLS.append(model)
    if model == "large" or not MODEL["works"]:
        raise TimeoutError("busy")
    return str(model)


@pytest.mark.parametrize("on_open", ["fail", "fallback", "wait"])
def test_the_breaker_does_not_stop_a_fallback_with_other_values(inline: Inline, on_open: Any) -> None:
    how = breaker("openai", failures=1, reset=60, on_open=on_open)
    inline.define("llm", step(ask_any, circuit_breaker=how, fallback=retry_with(model="mini")))
    MODEL["works"] = True
    assert run(inline, "first").result == "mini"
    assert CALLS == ["large", "mini"]
    assert state(inline) == "open"
    if on_open != "wait":
        assert run(inline, "second").result == "mini"
        assert CALLS == ["large", "mini", "mini"]


def test_the_failure_of_a_fallback_with_other_values_does_not_count(inline: Inline) -> None:
    how = breaker("openai", failures=2, reset=60)
    inline.define("llm", step(ask_any, circuit_breaker=how, fallback=retry_with(model="mini")))
    assert run(inline, "first").status == "failed"
    assert CALLS == ["large", "mini"]
    assert inline.rival.breakers() == [] or state(inline) == "closed"
    assert run(inline, "second").status == "failed"
    assert CALLS == ["large", "mini", "large", "mini"]
    assert state(inline) == "open"


def test_a_step_that_waits_is_called_when_the_breaker_is_closed(inline: Inline) -> None:
    MODEL["works"] = True
    define(inline, "wait")
    inline.rival.open_breaker("openai", seconds=30)
    assert run(inline, "r") is None
    [waiting] = inline.rival.state("r").steps
    assert (waiting.status, waiting.attempts) == ("waiting_retry", 0)
    time_passes(inline, 100)
    for one in inline.store.due(SweepOptions(10, 1.0, 10.0)):
        inline.coordinator.attempt(one.run_id, one.path or "", one.token, one.workflow, one.version)
    assert inline.rival.result("r").result == "answer"
    assert [entry.what for entry in inline.rival.history("r") if entry.path] == [
        "claimed", "postponed", "claimed", "breaker", "breaker", "completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "error", "opens"),
    [
        ((TimeoutError,), TimeoutError("x"), True),
        ((TimeoutError,), ValueError("x"), False),
        (("Timeout*",), TimeoutError("x"), True),
        ((), StepError("x"), True),
    ],
)
def test_only_errors_that_count_open_the_breaker(inline: Inline, counts: Any, error: Exception, opens: bool) -> None:
    def fails() -> None:
        raise error

    inline.define("llm", step(fails, circuit_breaker=breaker("b", failures=1, counts=counts)))
    run(inline, "r")
    assert [one.state for one in inline.rival.breakers()] == (["open"] if opens else [])


def test_failures_before_the_window_do_not_count(inline: Inline) -> None:
    define(inline, breaker={"window": 60})
    run(inline, "a")
    time_passes(inline, 70)
    run(inline, "b")
    assert state(inline) == "closed"


def test_operators_open_close_and_reset_breakers(inline: Inline) -> None:
    define(inline)
    MODEL["works"] = True
    inline.rival.open_breaker("openai", by="ana")
    assert run(inline, "a").error["type"] == "BreakerOpen"
    [one] = inline.rival.breakers()
    assert (one.state, one.until, one.changed_by) == ("open", None, "ana")
    assert inline.rival.close_breaker("openai")
    assert not inline.rival.close_breaker("openai")
    assert run(inline, "b").result == "answer"
    assert inline.rival.reset_breaker("openai")
    assert not inline.rival.reset_breaker("openai")
    assert inline.rival.breakers() == []


def test_a_breaker_that_nothing_uses_is_opened_only_by_force(inline: Inline) -> None:
    define(inline)
    with pytest.raises(InvalidArgument) as refused:
        inline.rival.open_breaker("opnai")
    unknown = "no registered workflow has a circuit breaker 'opnai' (did you mean 'openai'?)"
    assert refused.value.problem == f"{unknown}: give force for one that only runs or later workflows have."
    assert inline.rival.breakers() == []
    inline.rival.open_breaker("opnai", force=True)
    inline.rival.set_policy("ask", {"circuit_breaker": breaker("of a rule")})
    for name in ("opnai", "openai", "of a rule"):
        inline.rival.open_breaker(name)
    assert [one.name for one in inline.rival.breakers()] == ["of a rule", "openai", "opnai"]


def test_the_async_client_has_the_same_verbs(inline: Inline) -> None:
    async def use() -> list[Any]:
        rival = AsyncRival(sync=inline.rival)
        await rival.open_breaker("b", seconds=5, force=True)
        [one] = await rival.breakers()
        return [one.state, await rival.close_breaker("b"), await rival.reset_breaker("b")]

    assert asyncio.run(use()) == ["open", True, True]


BREAKER = Breaker(name="b", failures=1, reset=0.001)


def begun(stage: Stage, count: int) -> list[Claim]:
    """Attempts that run."""
    return [stage.begin(f"r{number}") for number in range(count)]


def opened(stage: Stage, claim: Claim) -> None:
    assert stage.store.breaker_failed(BREAKER, claim, "a") == "open"
    stage.time_passes(1)


def test_a_late_success_from_before_the_opening_closes_nothing(stage: Stage) -> None:
    early, failing, probe = begun(stage, 3)
    assert stage.store.ask_breaker(BREAKER, early, "a").goes
    opened(stage, failing)
    assert stage.store.breaker_succeeded(BREAKER, early, "a") is None
    assert stage.store.ask_breaker(BREAKER, probe, "a").probes
    assert stage.store.breaker_succeeded(BREAKER, early, "a") is None
    assert stage.store.breaker_failed(BREAKER, early, "a") is None
    assert stage.store.breaker_succeeded(BREAKER, probe, "a") == "closed"


@pytest.mark.parametrize("how", ["taken over", "cancelled", "retried"])
def test_a_probe_that_does_not_run_any_more_makes_room_for_another(stage: Stage, how: str) -> None:
    failing, probe, other = begun(stage, 3)
    opened(stage, failing)
    assert stage.store.ask_breaker(BREAKER, probe, "a").probes
    assert not stage.store.ask_breaker(BREAKER, other, "b").goes
    match how:
        case "taken over":
            stage.store.take_over_step(probe)
        case "cancelled":
            stage.cancel(probe.run_id)
        case "retried":
            stage.store.retry_step(probe, SOON, published=True)
    assert stage.store.ask_breaker(BREAKER, other, "b").probes
    assert stage.store.breaker_succeeded(BREAKER, probe, "a") is None


def asked_at_once(stage: Stage, claims: list[Claim]) -> list[tuple[Claim, BreakerAnswer]]:
    barrier = threading.Barrier(len(claims))

    def ask_once(claim: Claim) -> tuple[Claim, BreakerAnswer]:
        barrier.wait(10)
        return claim, stage.store.ask_breaker(BREAKER, claim, claim.run_id)

    with ThreadPoolExecutor(len(claims)) as threads:
        return list(threads.map(ask_once, claims))


@pytest.mark.parametrize("pg_stage", ["postgres"], indirect=True)
def test_two_failures_at_one_moment_may_each_see_only_their_own_and_the_next_one_opens_the_breaker(
    pg_stage: Stage,
) -> None:
    """Executors count in rows of their own, so that they do not wait for each other. Only the threshold can be seen
    late, and by one failure."""
    of = Breaker(name="b", failures=3)
    store, claims = pg_stage.store, [Claim(f"r{number}", "work", 1) for number in range(4)]
    moved = [store.breaker_failed(of, claims[3], "first")]
    with interleaved(
        store.database,
        "SELECT rival_breakers.probe_run",
        lambda: moved.append(store.breaker_failed(of, claims[1], "second")),
    ) as both:
        moved.append(store.breaker_failed(of, claims[0], "first"))
    assert both.has_begun
    assert both.error is None
    assert moved == [None, None, None]
    assert store.ask_breaker(of, claims[2], "third").goes
    assert store.breaker_failed(of, claims[2], "third") == "open"


@pytest.mark.parametrize("pg_stage", ["postgres"], indirect=True)
def test_two_failures_that_both_open_the_breaker_do_not_deadlock(
    pg_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflict_retries, "CONFLICT_TRIES", 1)
    of = Breaker(name="b", failures=3)
    store, claims = pg_stage.store, begun(pg_stage, 4)
    moved = [store.breaker_failed(of, claims[0], "first"), store.breaker_failed(of, claims[1], "second")]
    with interleaved(
        store.database,
        "SELECT rival_breakers.name",
        lambda: moved.append(store.breaker_failed(of, claims[3], "second")),
    ) as both:
        moved.append(store.breaker_failed(of, claims[2], "first"))
    assert both.has_begun
    assert both.error is None
    assert sorted(map(str, moved)) == ["None", "None", "None", "open"]
    [one] = list_breakers_of(store)
    assert (one.state, one.opened) == ("open", 1)


@pytest.mark.parametrize("pg_stage", ["postgres"], indirect=True)
def test_a_breaker_that_is_reset_while_a_failure_would_open_it_stays_closed(pg_stage: Stage) -> None:
    of = Breaker(name="b", failures=2)
    store, claims = pg_stage.store, begun(pg_stage, 2)
    assert store.breaker_failed(of, claims[0], "first") is None
    with interleaved(
        store.database,
        "SELECT rival_breakers.name",
        lambda: store.database.transact(lambda connection: reset_breaker(connection, "b")),
    ) as both:
        assert store.breaker_failed(of, claims[1], "second") is None
    assert both.has_begun
    assert both.error is None
    assert store.ask_breaker(of, claims[0], "first").goes


@pytest.mark.parametrize("pg_stage", ["postgres"], indirect=True)
def test_a_breaker_that_is_reset_while_an_operator_opens_it_is_open(pg_stage: Stage) -> None:
    database = pg_stage.store.database
    pg_stage.store.breaker_failed(Breaker(name="b", failures=5), begun(pg_stage, 1)[0], "first")
    with interleaved(
        database,
        "SELECT rival_breakers.name",
        lambda: database.transact(lambda connection: reset_breaker(connection, "b")),
    ) as both:
        database.transact(lambda connection: open_breaker(connection, "b", None, "ana"))
    assert both.has_begun
    assert both.error is None
    [one] = list_breakers_of(pg_stage.store)
    assert (one.state, one.changed_by) == ("open", "ana")


def list_breakers_of(store: Any) -> list[Any]:
    with store.database.autocommit() as connection:
        return list_breakers(connection)


@pytest.mark.slow
@pytest.mark.parametrize("pg_stage", ["postgres"], indirect=True)
def test_of_20_attempts_at_half_open_exactly_one_probes_in_each_round(pg_stage: Stage) -> None:
    claims = begun(pg_stage, 20)
    for _ in range(examples(25)):
        assert pg_stage.store.breaker_failed(BREAKER, claims[0], "a") == "open"
        threading.Event().wait(0.002)
        answers = asked_at_once(pg_stage, claims)
        probes = [claim for claim, answer in answers if answer.probes]
        assert len(answers) == 20
        assert len(probes) == 1
        assert sum(answer.goes for _, answer in answers) == 1
        assert pg_stage.store.breaker_succeeded(BREAKER, probes[0], "a") == "closed"


def test_wrong_breakers_are_refused_with_all_problems() -> None:
    def wrong(**options: Any) -> str:
        with pytest.raises(DefinitionError) as refused:
            define_workflow("w", [step(ask, **options)])
        return "\n".join(refused.value.problems)

    def problem(text: str) -> str:
        return f"workflow 'w': steps[0]: {text} ({__file__}:{ask.__code__.co_firstlineno})"

    assert wrong(circuit_breaker=breaker("b", failures=0, window=-1)).splitlines() == [
        problem("option circuit_breaker.failures: Input should be greater than or equal to 1"),
        problem("option circuit_breaker.window: Input should be greater than 0"),
    ]
    assert wrong(circuit_breaker=breaker("b", on_open="explode")) == problem(  # type: ignore[arg-type]
        "option circuit_breaker.on_open: Input should be 'fail', 'skip', 'fallback' or 'wait'"
    )
    assert wrong(circuit_breaker=breaker("b", on_open="fallback")) == problem(
        'a circuit breaker with on_open="fallback" needs a fallback: value(…), retry_with(…) or a function'
    )
    assert wrong(circuit_breaker="openai") == problem(
        'option circuit_breaker: give breaker("openai", failures=5, window=60)'
    )
    assert wrong(hooks={"on_retry": ask}) == problem(
        "option hooks: give hooks to the workflow, or to some of its steps in a rule of its policies"
    )


def test_a_step_of_a_flow_has_no_breaker(inline: Inline) -> None:
    @flow("f", registry=Registry())
    def f(ctx: Any) -> Any:
        return ctx.step(ask, options={"circuit_breaker": breaker("b")})

    inline.define("llm", f)
    inline.rival.run("llm", {}, run_id="r")
    inline.drain()
    assert inline.rival.result("r").error["message"] == (
        "step 'ask' of flow 'f': option circuit_breaker: a step of a flow has none: put the step into a workflow "
        "of steps, which the flow can ctx.call(…)"
    )


def waiting(inline: Inline, count: int, seconds: float | None = 86_400) -> list[str]:
    """Runs whose step waits since an operator has opened the breaker."""
    MODEL["works"] = True
    define(inline, "wait")
    inline.rival.open_breaker("openai", seconds=seconds)
    run_ids = [f"r{number}" for number in range(count)]
    for run_id in run_ids:
        assert run(inline, run_id) is None
    return run_ids


def round_of(inline: Inline) -> list[str]:
    """What one round of the keeper lets be called."""
    before = len(CALLS)
    inline.keeper.run_once()
    inline.drain()
    return CALLS[before:]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_closing_calls_one_step_that_waits_and_each_success_two_more(inline: Inline, how: str) -> None:
    run_ids = waiting(inline, 8)
    assert round_of(inline) == []
    assert inline.rival.close_breaker("openai") if how == "close" else inline.rival.reset_breaker("openai")
    called, after_it = (inline.rival.why(run_id).reasons[0] for run_id in ("r0", "r1"))
    assert called.evidence[-1] == "circuit breaker openai was open when it asked before"
    assert (after_it.text, after_it.evidence[0]) == (
        "ask was not called, since circuit breaker openai was open. It is closed now.",
        "of the steps that waited one is called at once, and two more after each success",
    )
    rounds = [sorted(round_of(inline)) for _ in range(4)]
    assert rounds == [["r0"], ["r1", "r2"], ["r3", "r4", "r5", "r6"], ["r7"]]
    assert {inline.rival.result(run_id).result for run_id in run_ids} == {"answer"}
    assert rows(inline) == []


def rows(inline: Inline) -> list[Any]:
    with inline.store.database.autocommit() as connection:
        return list(connection.scalars(text("SELECT run_id FROM rival_breaker_waits ORDER BY since, run_id")))


def test_a_probe_that_closes_the_breaker_calls_the_next_step(inline: Inline) -> None:
    waiting(inline, 4)
    inline.rival.open_breaker("openai", seconds=40)
    assert round_of(inline) == []
    inline.time_passes(41)
    assert round_of(inline) == ["r0"]
    assert state(inline) == "closed"
    assert [sorted(round_of(inline)) for _ in range(2)] == [["r1"], ["r2", "r3"]]


def test_opening_again_for_a_shorter_time_brings_the_time_of_one_step_forward(inline: Inline) -> None:
    waiting(inline, 2)
    inline.rival.open_breaker("openai", seconds=40)
    [first], [second] = (inline.rival.state(run_id).steps for run_id in ("r0", "r1"))
    assert (first.due_at - second.due_at).total_seconds() < -80_000
    MODEL["works"] = False
    inline.time_passes(41)
    assert round_of(inline) == ["r0"]
    # Its probe has failed: the next one probes when the breaker lets an attempt try again.
    assert state(inline) == "open"
    MODEL["works"] = True
    inline.time_passes(241)
    assert round_of(inline) == ["r1"]


def test_steps_that_are_called_and_do_not_succeed_stop_the_others_until_the_sweep(inline: Inline) -> None:
    waiting(inline, 3)
    assert round_of(inline) == []
    inline.rival.close_breaker("openai")
    inline.rival.cancel("r0")
    assert round_of(inline) == []
    inline.store.sweep_breakers()
    assert round_of(inline) == ["r1"]
    assert round_of(inline) == ["r2"]


def test_a_step_of_a_paused_run_is_not_called_and_the_next_one_is(inline: Inline) -> None:
    waiting(inline, 2)
    inline.rival.pause("r0")
    inline.rival.close_breaker("openai")
    assert round_of(inline) == ["r1"]
    inline.rival.resume("r0")
    inline.store.sweep_breakers()
    assert round_of(inline) == ["r0"]


def test_a_cancelled_step_leaves_the_queue_of_the_breaker_with_the_next_sweep(inline: Inline) -> None:
    waiting(inline, 2, seconds=None)
    inline.rival.cancel("r0")
    inline.store.sweep_breakers()
    assert rows(inline) == ["r1"]
    assert inline.rival.state("r1").steps[0].status == "waiting_retry"
