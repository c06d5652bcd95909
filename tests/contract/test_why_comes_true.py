"""What `why` says comes true: runs are driven into random situations, and each reason is compared with what happens.

A hint that is wrong does harm. So: a run whose reasons name nothing that a worker or a keeper could do now does not
move while they work; what is to be published or taken moves when they do; nothing moves before the earliest time that a
reason names, and what it names moves then; and who does what a reason advises sets the run in motion.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client.errors import NotPossible
from rival_client.model.records import Run
from rival_client.model.statuses import RUN_ACTIVE
from rival_client.model.why.why_records import Reason
from rival_workers import StepError, breaker, delay_step, flow, for_each, limit, parallel, rate, step, wait_event_step
from tests.support.effort import examples
from tests.support.inline import Clock, Inline, opened

#: What a worker or a keeper does now.
AT_ONCE = ("queued", "not_published", "deadline")
#: What it may do now: a circuit breaker is asked again and again.
PERHAPS = (*AT_ONCE, "breaker")
#: Seconds that the clock of the test may be wrong on Postgres, which has its own.
SLACK = 20.0
SEEDS = range(examples(1))


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    with opened(lambda: Inline(url, clock=Clock() if request.param == "sqlite" else None)) as inline:
        define(inline)
        yield inline


def asks(ctx: Any) -> None:
    """An external step: its answer comes from elsewhere."""


def fails() -> None:
    raise StepError("declined", behavior="retry")


def breaks() -> None:
    raise ValueError("down")


def define(inline: Inline) -> None:
    external = {"execution_mode": "external", "heartbeat": 6000}
    event = wait_event_step("go", name="wait", where={"ok": True}, timeout=3000)
    inline.define("plain", step(lambda: 1, name="a"), step(lambda: 2, name="b"))
    inline.define("sleeps", delay_step(400, name="nap"), step(lambda: 1, name="a", delay=200))
    inline.define("retries", step(fails, name="charge", max_attempts=3, base_delay=300))
    inline.define("waits", event)
    inline.define("asks", step(asks, name="ask", **external))
    inline.define("desk", step(asks, name="ask", concurrency_limit=limit("desk", 1), **external))
    queued = {"concurrency_limit": limit("counter", 2), "queue_timeout": 2500}
    inline.define("counter", step(asks, name="ask", **queued, **external))
    inline.define("rated", step(lambda: 1, name="mail", rate_limit=rate(1, per=500)))
    inline.define("keyed", step(asks, name="ask", idempotency_key=lambda input: "k", **external))
    bank = breaker("bank", failures=1, reset=600, on_open="wait")
    inline.define("breaks", step(breaks, name="pay", circuit_breaker=bank, max_attempts=1))
    inline.define("both", parallel("p", [event, delay_step(700, name="nap"), step(asks, name="ask", **external)]))
    lanes = {"items": lambda: [1, 2, 3, 4], "do": [delay_step(250, name="nap")], "concurrency": 2}
    inline.define("each", for_each("lines", **lanes), step(asks, name="ask", **external))
    undo = step(asks, name="x", compensate=asks)
    inline.define("undoes", undo, delay_step(150, name="nap"), step(breaks, name="c", on_failure="compensate"))

    @flow("calls", registry=inline.registry)
    def calls(ctx: Any) -> Any:
        return ctx.call(random_child(ctx), {})

    @flow("lanes", registry=inline.registry)
    def lanes_of_flow(ctx: Any) -> Any:
        ctx.sleep(350)
        return ctx.await_event("go", where={"ok": True}, timeout=2000)

    inline.process.register_workflows()


def random_child(ctx: Any) -> str:
    return "waits" if ctx.run_id[-1] in "02468" else "both"


class Driver:
    def __init__(self, inline: Inline, seed: int) -> None:
        self.inline, self.rival, self.random = inline, inline.rival, random.Random(seed)
        self.count = 0
        #: What was done, for the message of a failure.
        self.done: list[str] = []

    # -- what happens to runs -----------------------------------------------------------------------------

    def act(self) -> None:
        doings = [self.start] * 6 + [self.pause, self.pause, self.resume, self.cancel, self.answer, self.send]
        doings += [self.lose_messages, self.open_breaker, self.wait]
        self.random.choice(doings)()

    def start(self) -> None:
        self.count += 1
        names = [one.name for one in self.inline.registry]
        name, run_id = self.random.choice(sorted(names)), f"r{self.count}"
        more: dict[str, Any] = self.random.choice(
            [
                *[{}] * 6,
                {"delay": 600},
                {"deadline": 1500},
                {"singleton": "s", "on_conflict": "queue"},
                {"debounce": 50, "key": "k"},
            ]
        )
        given = {} if "debounce" in more else {"run_id": run_id}
        self.done.append(f"run {name} {run_id} {more}")
        self.rival.run(name, {}, **given, **more)

    def one_of(self) -> str | None:
        found = self.open_runs()
        return self.random.choice(found) if found else None

    def pause(self) -> None:
        if (run_id := self.one_of()) is not None:
            self.done.append(f"pause {run_id}: {self.rival.pause(run_id, by='ann')}")

    def resume(self) -> None:
        if (run_id := self.one_of()) is not None:
            self.done.append(f"resume {run_id}: {self.rival.resume(run_id, by='ann')}")

    def cancel(self) -> None:
        if (run_id := self.one_of()) is not None and self.random.random() < 0.3:
            self.done.append(f"cancel {run_id}: {self.rival.cancel(run_id, by='ann')}")

    def answer(self) -> None:
        asked = [(run_id, one) for run_id, one in self.reasons() if one.what == "external"]
        if asked:
            run_id, one = self.random.choice(asked)
            self.settle_step(run_id, one.step or "")

    def settle_step(self, run_id: str, path: str) -> None:
        self.done.append(f"set {path} of {run_id}")
        self.rival.set_result(run_id, path, 1, reason="test", by="ann")

    def send(self) -> None:
        self.done.append("send go")
        self.rival.send_event("go", {"ok": self.random.random() < 0.5})

    def lose_messages(self) -> None:
        """For long enough that keepers notice."""
        self.done.append(f"lose {len(self.inline.doorbell.take())} messages")
        self.time_passes(self.inline.settings.ring_grace + SLACK)

    def open_breaker(self) -> None:
        self.done.append("open bank")
        self.rival.open_breaker("bank", seconds=self.random.choice([None, 450]), by="ann")

    def wait(self) -> None:
        self.time_passes(self.random.choice([30.0, 120.0, 700.0]))

    def time_passes(self, seconds: float) -> None:
        self.done.append(f"{seconds:.0f} s pass")
        self.inline.receive()
        self.inline.time_passes(seconds)
        if self.inline.clock is None:
            self.inline.later = [(at - seconds, message) for at, message in self.inline.later]
        self.inline.process.executor.register()

    def work(self) -> None:
        """Workers and keepers do all that they can do now."""
        for _ in range(4):
            self.inline.drain()
            self.inline.keeper.run_once()
        self.inline.drain()

    # -- what is said -------------------------------------------------------------------------------------

    def runs(self) -> dict[str, Run]:
        found = [run for status in RUN_ACTIVE for run in self.rival.runs(status=status, limit=500)]
        return {run.run_id: run for run in sorted(found, key=lambda run: run.run_id)}

    def open_runs(self) -> list[str]:
        return [*self.runs()]

    def reasons(self) -> list[tuple[str, Reason]]:
        return [(run_id, one) for run_id in self.open_runs() for one in self.rival.why(run_id).reasons]

    def moments(self) -> dict[str, int]:
        return {run_id: len(self.rival.history(run_id)) for run_id in self.open_runs()}

    def about(self, *more: Any) -> str:
        return "\n".join([*self.done, *map(str, more), *(f"{run_id}: {one}" for run_id, one in self.reasons())])

    # -- whether it comes true ----------------------------------------------------------------------------

    def nothing_is_unknown(self) -> None:
        said = self.reasons()
        assert {run_id for run_id, _ in said} == set(self.open_runs()), self.about()
        assert [one for one in said if not one[1].known] == [], self.about()

    def what_can_be_done_is_done_and_nothing_else(self) -> None:
        before, moments = self.reasons(), self.moments()
        for run_id, one in before:
            if one.what == "running":
                raise AssertionError(self.about("nothing runs here", run_id, one))
        quiet = not any(one.what in PERHAPS for _, one in before)
        self.work()
        if quiet:
            assert self.moments() == moments, self.about("said before:", *before)
        late = [one for one in self.reasons() if one[1].what in AT_ONCE]
        assert late == [], self.about("these have not moved:", *late)

    def nothing_moves_before_its_time_and_all_does_then(self) -> None:
        self.work()
        said, moments = self.reasons(), self.moments()
        paused = {run_id for run_id, one in said if one.what == "paused"}
        untils = [one.until for _, one in said if one.until is not None]
        if not untils:
            return
        now = self.rival.why(said[0][0]).at
        ahead = (min(untils) - now).total_seconds()
        deadlines = [run.deadline_at for run in self.runs().values() if run.deadline_at is not None]
        first = min([ahead, *((one - now).total_seconds() for one in deadlines)])
        if first > 2 * SLACK:
            self.time_passes(first - SLACK)
            self.work()
            asking = {run_id for run_id, one in said if one.what == "breaker"}
            moved = {run_id for run_id, count in self.moments().items() if moments[run_id] != count}
            assert moved <= asking, self.about("before its time:", moved, "said before:", *said)
            first = SLACK
        due = [(run_id, one) for run_id, one in self.reasons() if one.until is not None and run_id not in paused]
        self.time_passes(max(first, 0) + SLACK)
        now = self.rival.why(said[0][0]).at
        self.work()
        late = [(run_id, one.step, one.until) for run_id, one in due if one.until is not None and one.until <= now]
        still = [(run_id, one.step, one.until) for run_id, one in self.reasons()]
        assert [one for one in late if one in still] == [], self.about("said before:", *due)

    def who_does_what_is_advised_sets_it_in_motion(self) -> None:
        self.work()
        said = [one for one in self.reasons() if one[1].what in ADVICE]
        if not said:
            return
        run_id, reason = self.random.choice(said)
        if reason.what != "paused" and self.runs()[run_id].is_paused:
            return
        before = len(self.rival.history(run_id))
        self.done.append(f"do what is advised for {run_id}: {reason}")
        ADVICE[reason.what](self, run_id, reason)
        self.work()
        assert len(self.rival.history(run_id)) > before, self.about()


def resume_it(driver: Driver, run_id: str, reason: Reason) -> None:
    assert shlex.split(reason.command or "") == ["rival", "resume", run_id]
    assert driver.rival.resume(run_id)


def send_it(driver: Driver, run_id: str, reason: Reason) -> None:
    _, emit, topic, option, given = shlex.split(reason.command or "")
    assert (emit, option) == ("emit", "--run-id")
    driver.rival.send_event(topic, {"ok": True}, run_id=given)


def answer_it(driver: Driver, run_id: str, reason: Reason) -> None:
    driver.settle_step(run_id, reason.step or "")


def free_the_limit(driver: Driver, run_id: str, reason: Reason) -> None:
    """Wait until others have ended, or raise it."""
    if reason.who == "the clock":
        return driver.time_passes(20_000)
    for _ in range(60):
        holders = [
            (one, said) for one, said in driver.reasons() if said.what in ("external", "event", "delay", "retry")
        ]
        if not any(one == run_id and said.what == "limit" for one, said in driver.reasons()):
            return None
        for one, said in holders:
            if one != run_id:
                end_it(driver, one, said)
        driver.work()
    return None


def end_it(driver: Driver, run_id: str, said: Reason) -> None:
    try:
        if said.what == "external":
            driver.rival.resume(run_id)
            driver.settle_step(run_id, said.step or "")
        else:
            driver.rival.cancel(run_id)
    except NotPossible:
        pass


def end_the_owner(driver: Driver, run_id: str, reason: Reason) -> None:
    _, path, _, _, owner = (reason.who or "").split()
    assert shlex.split(reason.command or "") == ["rival", "why", owner]
    driver.rival.resume(owner)
    driver.settle_step(owner, path)


def end_the_child(driver: Driver, run_id: str, reason: Reason) -> None:
    child = (reason.who or "").partition("run ")[2]
    assert shlex.split(reason.command or "") == ["rival", "why", child]
    assert driver.rival.cancel(child)


def close_the_breaker(driver: Driver, run_id: str, reason: Reason) -> None:
    if reason.command:
        assert shlex.split(reason.command) == ["rival", "breaker", "close", "bank"]
        assert driver.rival.close_breaker("bank")
    driver.time_passes(1000)


ADVICE = {
    "paused": resume_it,
    "event": send_it,
    "external": answer_it,
    "limit": free_the_limit,
    "idempotency_key": end_the_owner,
    "child": end_the_child,
    "breaker": close_the_breaker,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_said_comes_true(inline: Inline, seed: int) -> None:
    driver = Driver(inline, seed)
    for _ in range(14):
        for _ in range(driver.random.randint(1, 4)):
            driver.act()
            if driver.random.random() < 0.3:
                driver.work()
        driver.nothing_is_unknown()
        driver.what_can_be_done_is_done_and_nothing_else()
        driver.random.choice(
            [
                driver.nothing_moves_before_its_time_and_all_does_then,
                driver.who_does_what_is_advised_sets_it_in_motion,
            ]
        )()
