"""Idempotency keys of steps: one call for many runs, who owns a key, and how it is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, text

from rival_client import AsyncRival, InvalidArgument, NotPossible
from rival_client.db.run_tables import steps as step_rows
from rival_workers import (
    DefinitionError,
    StepError,
    breaker,
    flow,
    for_each,
    limit,
    parallel,
    step,
    value,
    workflow,
)
from tests.support.effort import examples
from tests.support.inline import Inline
from tests.support.output import is_printed, whole

pytestmark = pytest.mark.usefixtures("locks_in_order")

KEY = "charge:{input.order}"
ORDER = {"order": 7}
#: The runs whose function was called; and what happens within the next calls.
CALLS: list[str] = []
DURING: list[Callable[[], Any]] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    CALLS.clear()
    DURING.clear()


def charge(run: Any) -> str:
    CALLS.append(run.run_id)
    if DURING:
        DURING.pop(0)()
    return f"charged by {run.run_id}"


def fails() -> None:
    raise ValueError("declined")


def define(inline: Inline, *after: Any, **options: Any) -> None:
    inline.define("pay", step(charge, **{"idempotency_key": KEY, **options}), *after)


def start(inline: Inline, *run_ids: str, input: Any = ORDER) -> None:
    for run_id in run_ids:
        inline.rival.run("pay", input, run_id)


def run(inline: Inline, run_id: str, input: Any = ORDER) -> Any:
    start(inline, run_id, input=input)
    inline.drain()
    return inline.rival.result(run_id)


def status(inline: Inline, run_id: str) -> str:
    return inline.rival.state(run_id).status


def whats(inline: Inline, run_id: str) -> list[str]:
    return [entry.what for entry in inline.rival.history(run_id) if entry.path == "charge"]


def owner(inline: Inline, key: str = "charge:7") -> Any:
    return inline.rival.idempotency_key(key, workflow="pay", step="charge")


def with_waiting(inline: Inline, *waiting: str, then: Callable[[], Any] = lambda: None) -> None:
    """Run `a`; while it is called, the others begin to wait for it, and then something happens."""

    def others() -> None:
        start(inline, *waiting)
        inline.drain()
        then()

    DURING.append(others)
    start(inline, "a")
    inline.drain()


# -- one call -----------------------------------------------------------------------------------------------


def test_a_completed_step_is_not_called_again_in_another_run(inline: Inline) -> None:
    define(inline)
    assert run(inline, "a").result == run(inline, "b").result == "charged by a"
    assert CALLS == ["a"]
    [_, ended] = [entry for entry in inline.rival.history("b") if entry.path]
    assert ended.detail == {"result": "charged by a", "reused_from": "a/charge"}
    found = owner(inline)
    assert (found.status, found.run_id, found.path, found.result) == ("completed", "a", "charge", "charged by a")
    assert run(inline, "c", {"order": 8}).result == "charged by c"


def test_the_results_of_the_steps_after_it_are_each_runs_own(inline: Inline) -> None:
    define(inline, step(lambda run, steps: [run.run_id, steps.charge.result], name="ship"))
    assert [run(inline, one).result for one in "ab"] == [["a", "charged by a"], ["b", "charged by a"]]


def test_another_input_with_the_same_key_is_a_conflict_that_is_not_retried(inline: Inline) -> None:
    define(inline, max_retries=3)
    run(inline, "a", {"order": 7, "amount": 1})
    refused = run(inline, "b", {"amount": 2, "order": 7})
    assert (refused.status, refused.error["type"]) == ("failed", "IdempotencyConflict")
    assert refused.error["message"] == (
        "the idempotency key 'charge:7' belongs to step a/charge with another input, so the step was not called. "
        "Make the key from all values that the result depends on; `rival key drop` frees a key."
    )
    assert run(inline, "c", {"amount": 1, "order": 7}).result == "charged by a"
    assert CALLS == ["a"]


def test_a_step_waits_for_the_owner_without_a_worker_and_gets_its_result(inline: Inline) -> None:
    define(inline)

    def look() -> None:
        assert status(inline, "b") == "suspended"
        [waiting] = inline.rival.state("b").steps
        assert (waiting.status, waiting.attempts) == ("waiting", 0)
        assert inline.doorbell.take() == []
        [reason] = inline.rival.why("b").reasons
        assert (reason.what, reason.who) == ("idempotency_key", "step charge of run a")
        assert (owner(inline).status, owner(inline).waiting) == ("running", 2)

    with_waiting(inline, "b", "c", then=look)
    assert {inline.rival.result(one).result for one in "abc"} == {"charged by a"}
    assert CALLS == ["a"]
    assert whats(inline, "b") == ["claimed", "queued", "claimed", "completed"]
    queued = next(entry for entry in inline.rival.history("b") if entry.what == "queued")
    assert (queued.detail["idempotency_key"], queued.detail["owner"]) == ("charge:7", "a/charge")


def test_many_that_wait_are_all_let_through(inline: Inline) -> None:
    define(inline)
    waiting = [f"w{n}" for n in range(examples(40))]
    with_waiting(inline, *waiting)
    assert {inline.rival.result(one).result for one in waiting} == {"charged by a"}
    assert CALLS == ["a"]


# -- the owner fails ----------------------------------------------------------------------------------------


def test_after_a_failure_the_next_one_becomes_the_owner(inline: Inline) -> None:
    define(inline)

    def fail() -> None:
        raise ValueError("declined")

    with_waiting(inline, "b", "c", "d", then=fail)
    assert status(inline, "a") == "failed"
    assert {inline.rival.result(one).result for one in "bcd"} == {"charged by b"}
    assert CALLS == ["a", "b"]


def test_a_retry_keeps_the_owner(inline: Inline) -> None:
    define(inline, max_retries=1, base_delay=5)

    def fail() -> None:
        raise ValueError("busy")

    with_waiting(inline, "b", then=fail)
    assert (status(inline, "b"), owner(inline).run_id) == ("suspended", "a")
    start(inline, "c")
    inline.drain()
    assert CALLS == ["a"]
    inline.time_passes(30)
    inline.keeper.run_once()
    inline.drain()
    assert {inline.rival.result(one).result for one in "abc"} == {"charged by a"}
    assert CALLS == ["a", "a"]


def test_a_takeover_keeps_the_owner(inline: Inline) -> None:
    define(inline)
    seen: list[Any] = []

    def lose() -> None:
        [lost] = [one for one in inline.store.running_on(inline.process.executor.id) if one.claim.run_id == "a"]
        inline.coordinator.transitions.take_over(lost)
        seen.append((owner(inline).status, owner(inline).run_id, status(inline, "b")))

    with_waiting(inline, "b", then=lose)
    assert seen == [("running", "a", "suspended")]
    assert {inline.rival.result(one).result for one in "ab"} == {"charged by a"}
    assert CALLS == ["a", "a"]


def _cancel(inline: Inline) -> None:
    inline.rival.cancel("a")


OUT: dict[str, Callable[[Inline], Any]] = {
    "cancelled": _cancel,
    "skipped by an operator": lambda inline: inline.rival.skip("a", "charge", reason="test"),
    "rewound": lambda inline: inline.rival.rewind("a", "charge"),
}


@pytest.mark.parametrize("way", OUT)
def test_every_other_end_of_the_owner_passes_the_key_on(inline: Inline, way: str) -> None:
    define(inline)
    with_waiting(inline, "b", "c", then=lambda: OUT[way](inline))
    inline.keeper.run_once()
    inline.drain()
    # A run that was rewound asks for the key again, and may be the first.
    [_, second] = CALLS
    assert {inline.rival.result(one).result for one in "bc"} == {f"charged by {second}"}


def test_a_result_that_an_operator_sets_is_the_result_of_all(inline: Inline) -> None:
    define(inline)
    with_waiting(inline, "b", "c", then=lambda: inline.rival.set_result("a", "charge", "by hand", reason="test"))
    inline.drain()
    assert {inline.rival.result(one).result for one in "abc"} == {"by hand"}


def test_49_wait_while_the_owner_is_cancelled(inline: Inline) -> None:
    define(inline)
    waiting = [f"w{n:02}" for n in range(49)]
    with_waiting(inline, *waiting, then=lambda: _cancel(inline))
    inline.keeper.run_once()
    inline.drain()
    assert {inline.rival.result(one).result for one in waiting} == {f"charged by {waiting[0]}"}
    assert ["a", waiting[0]] == CALLS


def test_the_next_owner_is_cancelled_before_it_starts(inline: Inline) -> None:
    define(inline)

    def cancel_both() -> None:
        inline.rival.cancel("a")
        inline.rival.cancel("b")

    with_waiting(inline, "b", "c", "d", then=cancel_both)
    inline.keeper.run_once()
    inline.drain()
    assert {inline.rival.result(one).result for one in "cd"} == {"charged by c"}


def test_an_owner_that_is_stopped_by_a_failure_beside_it_passes_the_key_on(inline: Inline) -> None:
    options: dict[str, Any] = {"idempotency_key": KEY, "idempotency_scope": "fleet"}
    inline.define("pay", parallel("both", [step(charge, **options), step(fails)], on_failure="cancel"))
    inline.define("one", step(charge, **options))

    def others() -> None:
        inline.rival.run("one", ORDER, "b")
        inline.drain()

    DURING.append(others)
    start(inline, "a")
    inline.drain()
    assert status(inline, "a") == "failed"
    assert inline.rival.result("b").result == "charged by b"


@pytest.mark.parametrize("how", [value("cached"), lambda: "cached"])
def test_the_result_of_a_fallback_is_not_shared(inline: Inline, how: Any) -> None:
    def fail() -> None:
        raise ValueError("declined")

    define(inline, fallback=how)
    with_waiting(inline, "b", "c", then=fail)
    assert [inline.rival.result(one).result for one in "abc"] == ["cached", "charged by b", "charged by b"]


def test_an_owner_that_has_vanished_is_found_by_the_sweep_and_by_the_next_claim(inline: Inline) -> None:
    define(inline)

    def vanish() -> None:
        with inline.store.database.transaction() as connection:
            connection.execute(delete(step_rows).where(step_rows.c.run_id == "a"))
            for table in ("history", "attempts"):
                connection.execute(text(f"DELETE FROM rival_{table} WHERE run_id = 'a'"))
            connection.execute(text("DELETE FROM rival_runs WHERE id = 'a'"))

    with_waiting(inline, "b", then=vanish)
    assert status(inline, "b") == "suspended"
    inline.time_passes(11)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("b").result == "charged by b"


# -- time ---------------------------------------------------------------------------------------------------


def test_a_result_that_has_expired_is_made_again(inline: Inline) -> None:
    define(inline, idempotency_ttl=60)
    run(inline, "a")
    inline.time_passes(59)
    assert run(inline, "b").result == "charged by a"
    inline.time_passes(2)
    assert owner(inline) is None
    assert run(inline, "c").result == run(inline, "d").result == "charged by c"


def test_a_ttl_shorter_than_the_step_counts_from_its_end(inline: Inline) -> None:
    define(inline, idempotency_ttl=5)
    with_waiting(inline, "b", then=lambda: inline.time_passes(60))
    assert {inline.rival.result(one).result for one in "ab"} == {"charged by a"}
    assert CALLS == ["a"]
    inline.time_passes(6)
    assert run(inline, "c").result == "charged by c"


def test_keepers_delete_what_has_expired_and_nothing_else(inline: Inline) -> None:
    define(inline, idempotency_ttl=60)
    run(inline, "a")
    run(inline, "b", {"order": 8})
    inline.time_passes(61)
    run(inline, "c", {"order": 9})
    inline.keeper.run_once()
    with inline.store.database.autocommit() as connection:
        assert connection.scalars(text("SELECT key FROM rival_idempotency_keys")).all() == ["charge:9"]


def test_the_result_outlives_the_run_that_made_it(inline: Inline) -> None:
    define(inline, idempotency_ttl=1000)
    run(inline, "a")
    inline.time_passes(100)
    assert inline.store.delete_ended_before(50, 10, "pay") == 1
    assert run(inline, "b").result == "charged by a"


# -- keys and scopes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "calls"), [("step", 4), ("workflow", 2), ("fleet", 1)])
def test_the_scope_says_between_which_steps_a_key_is_shared(inline: Inline, scope: Any, calls: int) -> None:
    options: dict[str, Any] = {"idempotency_key": KEY, "idempotency_scope": scope}
    for name in ("pay", "refund"):
        inline.define(name, step(charge, **options), step(charge, name="again", **options))
    for name in ("pay", "refund", "pay"):
        inline.rival.run(name, ORDER)
        inline.drain()
    assert len(CALLS) == calls


async def later(input: Any) -> str:
    return f"async:{input['order']}"


@pytest.mark.parametrize(
    ("function", "key"),
    [(lambda input: input["order"], "7"), (later, "async:7"), (lambda ctx: f"k{ctx.input['order']}", "k7")],
)
def test_a_function_can_make_the_key(inline: Inline, function: Any, key: str) -> None:
    define(inline, idempotency_key=function)
    assert run(inline, "a").result == run(inline, "b").result == "charged by a"
    assert owner(inline, key).status == "completed"


def test_a_function_of_the_workflows_policies_can_make_the_key(inline: Inline) -> None:
    inline.define("pay", charge, policies=[("charge", {"idempotency_key": lambda input: input["order"]})])
    assert run(inline, "a").result == run(inline, "b").result == "charged by a"


def test_none_as_a_key_means_that_the_step_has_none(inline: Inline) -> None:
    define(inline, idempotency_key=lambda input: None)
    assert [run(inline, one).result for one in "ab"] == ["charged by a", "charged by b"]


def _raises() -> str:
    raise KeyError("order")


MUST_RETURN = (
    "the function of idempotency_key must return a text of 1 to 1000 characters, a whole number, or None for a step "
    "without a key, not "
)
NO_VALUE = "the idempotency key needs input.order, which has no value"


@pytest.mark.parametrize(
    ("key", "input", "error"),
    [
        (lambda: 1.5, ORDER, f"{MUST_RETURN}1.5"),
        (lambda: b"x", ORDER, f"{MUST_RETURN}b'x'"),
        (lambda: object(), ORDER, f"{MUST_RETURN}<object object at …>"),
        (lambda: "a\x00b", ORDER, f"{MUST_RETURN}'a\\x00b'"),
        (lambda: "", ORDER, f"{MUST_RETURN}''"),
        (lambda: "x" * 2000, ORDER, f"{MUST_RETURN}'xxx…"),
        (_raises, ORDER, "'order'"),
        (KEY, {"order": None}, NO_VALUE),
        (KEY, None, NO_VALUE),
    ],
)
def test_without_a_key_that_can_be_used_the_step_fails_and_is_not_called(
    inline: Inline, key: Any, input: Any, error: str
) -> None:
    define(inline, idempotency_key=key)
    failed = run(inline, "a", input)
    assert failed.status == "failed"
    assert is_printed([error], [failed.error["message"]])
    assert CALLS == []


def test_a_key_that_changes_between_attempts_frees_the_first_one(inline: Inline) -> None:
    numbers = iter(range(10))

    def fail() -> None:
        raise StepError("busy", behavior="retry")

    DURING.append(fail)
    define(inline, idempotency_key=lambda: f"k{next(numbers)}", max_attempts=2, base_delay=0)
    assert run(inline, "a").result == "charged by a"
    assert (owner(inline, "k0").status, owner(inline, "k1").status) == ("free", "completed")


def test_values_of_items_labels_and_run_are_possible_in_a_key(inline: Inline) -> None:
    key = "{item.sku}-{labels.tenant}"
    inline.define(
        "pay", for_each("lines", items=lambda input: input, do=[step(charge, idempotency_key=key)], concurrency=2)
    )
    lines = [{"sku": "x"}, {"sku": "y"}, {"sku": "x"}]
    for one in "ab":
        inline.rival.run("pay", lines, one, labels={"tenant": "acme"})
        inline.drain()
    assert CALLS == ["a", "a"]
    assert {one.key for one in inline.rival.idempotency_keys()} == {"x-acme", "y-acme"}


def test_the_input_of_a_nested_workflow_makes_the_key_of_its_steps(inline: Inline) -> None:
    inner = inline.define("inner", step(charge, idempotency_key=KEY))
    inline.define("pay", workflow(inner, input=lambda input: {"order": input["number"]}))
    assert run(inline, "a", {"number": 1, "x": 1}).result == "charged by a"
    assert run(inline, "b", {"number": 1, "x": 2}).result == "charged by a"
    assert run(inline, "c", {"number": 2}).result == "charged by c"


def test_a_whole_flow_can_have_a_key(inline: Inline) -> None:
    @flow(registry=inline.registry)
    def checkout(ctx: Any, input: Any) -> Any:
        ctx.sleep(seconds=20)
        return ctx.step(charge_flow, ctx.run.run_id)

    def charge_flow(run_id: str) -> str:
        CALLS.append(run_id)
        return f"charged by {run_id}"

    inline.define("pay", step(checkout, idempotency_key=KEY))
    start(inline, "a", "b")
    inline.drain()
    inline.time_passes(40)
    inline.keeper.run_once()
    inline.drain()
    assert {inline.rival.result(one).result for one in "ab"} == {"charged by a"}
    assert CALLS == ["a"]


# -- with other policies ------------------------------------------------------------------------------------


def test_a_step_that_waits_for_a_key_uses_no_slot_of_a_limit(inline: Inline) -> None:
    define(inline, concurrency_limit=limit("bank", 2))

    def look() -> None:
        assert inline.rival.limit("bank").limit.used == 1
        start(inline, "other", input={"order": 8})
        inline.drain()
        assert inline.rival.result("other").result == "charged by other"

    with_waiting(inline, "b", "c", then=look)
    assert {inline.rival.result(one).result for one in "abc"} == {"charged by a"}
    assert inline.rival.limit("bank").limit.used == 0


def test_a_limit_that_is_full_when_the_key_is_free_is_waited_for(inline: Inline) -> None:
    define(inline, concurrency_limit=limit("bank", 1))
    with_waiting(inline, "b", "c")
    assert {inline.rival.result(one).result for one in "abc"} == {"charged by a"}
    assert (CALLS, inline.rival.limit("bank").limit.used) == (["a"], 0)


def test_a_reused_result_does_not_ask_the_circuit_breaker(inline: Inline) -> None:
    define(inline, circuit_breaker=breaker("bank", failures=1, on_open="fail"))
    run(inline, "a")
    inline.rival.open_breaker("bank")
    assert run(inline, "b").result == "charged by a"
    assert run(inline, "c", {"order": 8}).error["type"] == "BreakerOpen"
    assert owner(inline, "charge:8").status == "free"


def test_an_external_step_owns_its_key_until_it_is_answered(inline: Inline) -> None:
    tokens: list[str] = []
    inline.define(
        "pay", step(lambda ctx: tokens.append(str(ctx.token)), name="charge", execution_mode="external",
                    idempotency_key=KEY)
    )  # fmt: skip
    start(inline, "a", "b")
    inline.drain()
    assert (len(tokens), owner(inline).status) == (1, "running")
    inline.rival.complete_step(tokens[0], "by the bank")
    inline.drain()
    assert {inline.rival.result(one).result for one in "ab"} == {"by the bank"}


def test_a_rule_of_the_fleet_can_give_a_key_and_a_function_is_refused(inline: Inline) -> None:
    define(inline, idempotency_key=None)
    inline.rival.run("pay", ORDER, "a", policies=[("charge", {"idempotency_key": KEY})])
    inline.rival.run("pay", ORDER, "b", policies=[("charge", {"idempotency_key": KEY})])
    inline.drain()
    assert inline.rival.result("b").result == "charged by a"
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument rule: the rule: option idempotency_key: give a text such as "
            '"charge:{input.order}": a function is code.'
        ),
    ):
        inline.rival.set_policy("charge", {"idempotency_key": charge})


def test_a_run_that_waits_can_be_paused_and_resumed(inline: Inline) -> None:
    define(inline)
    with_waiting(inline, "b", then=lambda: inline.rival.pause("b"))
    inline.drain()
    assert [one.status for one in inline.rival.state("b").steps] == ["pending"]
    inline.rival.resume("b")
    inline.drain()
    assert inline.rival.result("b").result == "charged by a"


def test_a_deadline_ends_the_wait(inline: Inline) -> None:
    define(inline, deadline=30)

    def too_late() -> None:
        inline.time_passes(31)
        inline.keeper.run_once()

    with_waiting(inline, "b", then=too_late)
    error = inline.rival.result("b").error
    assert error is not None
    assert error["type"] == "DeadlineExceeded"


# -- operators ----------------------------------------------------------------------------------------------


def test_a_key_that_is_dropped_lets_the_next_step_be_called(inline: Inline) -> None:
    define(inline)
    run(inline, "a")
    which = {"workflow": "pay", "step": "charge"}
    assert inline.rival.drop_idempotency_key("charge:7", **which, by="ana")
    assert not inline.rival.drop_idempotency_key("charge:7", **which)
    assert not inline.rival.drop_idempotency_key("charge:7")
    assert run(inline, "b").result == "charged by b"
    [dropped] = [entry for entry in inline.rival.history("a") if entry.what == "key_dropped"]
    assert (dropped.by, dropped.detail) == ("ana", {"key": "charge:7"})


def test_a_key_cannot_be_dropped_while_its_step_runs(inline: Inline) -> None:
    define(inline)

    def drop() -> None:
        with pytest.raises(
            NotPossible,
            match=whole(
                "Cannot drop run 'a': its step 'charge' owns the key 'charge:7' and has not ended: cancel the run, "
                "or wait for its end. Nothing was changed."
            ),
        ):
            inline.rival.drop_idempotency_key("charge:7", workflow="pay", step="charge")

    with_waiting(inline, then=drop)
    assert inline.rival.result("a").result == "charged by a"


def test_a_rewind_uses_the_result_until_the_key_is_dropped(inline: Inline) -> None:
    define(inline)
    run(inline, "a")
    inline.rival.rewind("a", "charge")
    inline.drain()
    assert CALLS == ["a"]
    inline.rival.drop_idempotency_key("charge:7", workflow="pay", step="charge")
    inline.rival.rewind("a", "charge")
    inline.drain()
    assert CALLS == ["a", "a"]


def test_keys_are_listed_newest_first_also_by_the_async_client(inline: Inline) -> None:
    define(inline)
    for order in (1, 2):
        run(inline, f"r{order}", {"order": order})
        inline.time_passes(1)
    assert [one.key for one in inline.rival.idempotency_keys(workflow="pay")] == ["charge:2", "charge:1"]
    assert inline.rival.idempotency_keys(workflow="other") == []

    async def both() -> None:
        rival = AsyncRival(database_url=inline.settings.database_url)
        which = {"workflow": "pay", "step": "charge"}
        assert len(await rival.idempotency_keys(limit=1)) == 1
        found = await rival.idempotency_key("charge:1", **which)
        assert found is not None
        assert found.result == "charged by r1"
        assert await rival.drop_idempotency_key("charge:1", **which)
        await rival.close()

    if inline.clock is None:
        asyncio.run(both())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("", {}), "Invalid argument key: '' is not a usable text: give 1 to 1,000 characters, not only white space."),
        ((7, {}), "Invalid argument key: 7 is not text: give a string of 1 to 1,000 characters."),
        (("k", {"step": "charge"}), "Invalid argument step: a step belongs to a workflow: give `workflow`, too."),
        (
            ("k", {"workflow": ""}),
            ("Invalid argument workflow: '' is not a usable text: give 1 to 200 characters, not only white space."),
        ),
    ],
)
def test_a_wrong_name_of_a_key_is_refused(inline: Inline, arguments: Any, why: str) -> None:
    key, options = arguments
    with pytest.raises(InvalidArgument, match=whole(why)):
        inline.rival.idempotency_key(key, **options)


# -- definitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"idempotency_key": "charge"},
            (
                "workflow 'pay': steps[0]: option idempotency_key: 'charge' is the same for all runs: name a value, "
                "as in 'charge:{input.order}' (…)"
            ),
        ),
        (
            {"idempotency_key": "charge:{order}"},
            (
                "workflow 'pay': steps[0]: option idempotency_key: 'order' is not the place of a value: begin with "
                "input, item, labels or give 'run.id' (…)"
            ),
        ),
        (
            {"idempotency_key": "charge:{input}"},
            (
                "workflow 'pay': steps[0]: option idempotency_key: 'input' is a whole input: give a field of it, "
                "such as 'input.tenant' (…)"
            ),
        ),
        (
            {"idempotency_key": "charge:{input.order"},
            (
                "workflow 'pay': steps[0]: option idempotency_key: 'charge:{input.order' has a brace that does not "
                "belong to a place such as {input.order} (…)"
            ),
        ),
        ({"idempotency_key": ""}, "workflow 'pay': steps[0]: option idempotency_key: give 1 to 1000 characters (…)"),
        (
            {"idempotency_key": 7},
            (
                "workflow 'pay': steps[0]: option idempotency_key: give a text such as \"charge:{input.order}\" or "
                "a function, not 7 (…)"
            ),
        ),
        (
            {"idempotency_key": lambda order, amount: order},
            (
                "workflow 'pay': steps[0]: charge's idempotency_key: cannot inject parameters 'order', 'amount': a "
                "step may ask for any of ctx, input, steps, last_step, state, log, run, or take the whole context "
                "as its only argument. Rename it, or give it a default. (…)"
            ),
        ),
        (
            {"idempotency_key": KEY, "idempotency_ttl": 0},
            "workflow 'pay': steps[0]: option idempotency_ttl: Input should be greater than 0 (…)",
        ),
        (
            {"idempotency_key": KEY, "idempotency_scope": "world"},
            ("workflow 'pay': steps[0]: option idempotency_scope: Input should be 'step', 'workflow' or 'fleet' (…)"),
        ),
    ],
)
def test_a_key_that_makes_no_sense_is_refused_at_registration(options: Any, why: str) -> None:
    from rival_workers.definition.define import define_workflow

    with pytest.raises(DefinitionError, match=whole(why)):
        define_workflow("pay", [step(charge, **options)])
