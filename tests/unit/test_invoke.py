"""Whatever a step does becomes an outcome: nothing that user code raises or returns gets past the call."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rival_workers import StepError, StepState
from rival_workers.definition.inject import STEP_NAMES, injection
from rival_workers.engine.decisions import Failure, Success
from rival_workers.runtime.attempt.context import Context, RunInfo
from rival_workers.runtime.attempt.invoke import MAX_MESSAGE, MAX_NAME, call


def outcome(function: Any, limit: int = 1000) -> Success | Failure:
    unused: Any = None
    run = RunInfo("order-1", "orders", "1", "charge", 2)
    context = Context(run, unused, unused, StepState(), lambda: None, None)
    return call(injection(function, STEP_NAMES), context, limit)


def failure(function: Any, limit: int = 1000) -> Failure:
    found = outcome(function, limit)
    assert isinstance(found, Failure)
    return found


def raises(error: BaseException) -> Any:
    def step() -> None:
        raise error

    return step


def test_sync_and_async_functions_succeed_with_their_result() -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 2

    assert outcome(lambda: 1) == Success("1")  # type: ignore[arg-type]
    assert outcome(later) == Success("2")  # type: ignore[arg-type]


def test_state_and_skip_are_part_of_the_outcome() -> None:
    def skips(state: Any) -> None:
        state.skipped = True
        state.description = "not today"

    assert outcome(skips) == Success("null", '{"skipped":true,"description":"not today"}', skipped=True)  # type: ignore[arg-type]


def test_a_plain_exception_stops_and_a_step_error_says_what_should_follow() -> None:
    plain = failure(raises(ValueError("no tree")))
    assert (plain.behavior, plain.error["type"], plain.error["message"]) == (None, "ValueError", "no tree")
    assert plain.error["attempt"] == 2
    asked = failure(raises(StepError("later", behavior="retry", max_attempts=3, backoff="jitter")))
    assert (asked.behavior, asked.max_attempts, asked.backoff) == ("retry", 3, "jitter")


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit(), MemoryError()], ids=repr)
def test_a_step_that_ends_the_process_has_failed_and_the_worker_has_not(error: BaseException) -> None:
    assert failure(raises(error)).error["type"] == type(error).__name__


def test_a_step_that_recurses_for_ever_has_failed() -> None:
    def down() -> Any:
        return down()

    assert failure(down).error["type"] == "RecursionError"


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"x"], ids=lambda value: type(value).__name__)
def test_a_result_that_is_not_json_fails_the_step_with_that_reason(value: Any) -> None:
    error = failure(lambda: value).error
    assert error["type"] == "InvalidPayload"
    assert error["message"].startswith("the result of step 'charge' of run 'order-1' is not JSON: ")


def test_a_result_or_state_over_the_limit_fails_the_step_with_that_reason() -> None:
    def notes(state: Any) -> None:
        state.page = "x" * 2000

    assert failure(lambda: "x" * 2000).error["message"] == (
        "the result of step 'charge' of run 'order-1' is 2,002 bytes, over the limit of 1,000. Store large "
        "things elsewhere and pass a reference, or raise RIVAL_MAX_PAYLOAD."
    )
    assert failure(notes).error["message"] == (
        "the state of step 'charge' of run 'order-1' is 2,011 bytes, over the limit of 1,000. Store large things "
        "elsewhere and pass a reference, or raise RIVAL_MAX_PAYLOAD."
    )


def test_the_state_of_a_failed_attempt_is_kept_when_it_can_be() -> None:
    def notes(state: Any) -> None:
        state.page = 3
        raise StepError("more", behavior="retry")

    def bad_notes(state: Any) -> None:
        state.page = object()
        raise StepError("more", behavior="retry")

    assert failure(notes).state == '{"page":3}'
    assert failure(bad_notes).state is None


def test_any_error_can_be_stored() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert failure(raises(Broken())).error["message"] == "(its __str__ raised RuntimeError)"
    assert failure(raises(ValueError("nul \x00, surrogate \ud800"))).error["message"] == "nul \\0, surrogate ?"
    assert len(failure(raises(ValueError("x" * 100_000))).error["message"]) == MAX_MESSAGE


def test_the_traceback_shows_the_users_frames_and_no_values() -> None:
    def step() -> None:
        password = "hunter2"
        raise ValueError(len(password))

    trace = failure(step).error["traceback"]
    assert __file__ in trace
    assert "/rival_workers/" not in trace
    assert sys.exc_info() == (None, None, None)


# -- any exception ----------------------------------------------------------------------------------------


class Custom(BaseException):
    pass


def odd_exceptions() -> dict[str, BaseException]:
    nul = type("Nul", (Exception,), {"__qualname__": "N\x00l"})
    long = type("L" * 1_000_000, (Exception,), {})

    class Strange(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

        def __repr__(self) -> str:
            raise SystemExit

        @property
        def __class__(self) -> Any:
            raise Custom

        @__class__.setter
        def __class__(self, value: Any) -> None:
            pass

    class Lying(Exception):
        __class__ = StepError  # type: ignore[assignment]

    class Unready(StepError):
        def __init__(self) -> None:
            pass

    class Wild(StepError):
        behavior, max_attempts, backoff = "dance", "many", object()  # type: ignore[assignment]

        def __init__(self) -> None:
            pass

    class Text(str):
        def replace(self, *_: Any) -> str:  # type: ignore[override]
            raise Custom

        def encode(self, *_: Any) -> bytes:
            raise Custom

    class Worded(Exception):
        def __str__(self) -> str:
            return Text("worded")

    group = BaseExceptionGroup("all", [ValueError("one"), KeyboardInterrupt()])
    return {
        "KeyboardInterrupt": KeyboardInterrupt(),
        "SystemExit": SystemExit(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "MemoryError": MemoryError(),
        "StopIteration": StopIteration(7),
        "StopAsyncIteration": StopAsyncIteration(),
        "RecursionError": RecursionError(),
        "Custom": Custom("own"),
        "N\\0l": nul("x"),
        "L" * MAX_NAME: long("x"),
        "Strange": Strange(),
        "Lying": Lying(),
        "Unready": Unready(),
        "Wild": Wild(),
        "Worded": Worded(),
        "BaseExceptionGroup": group,
    }


@pytest.mark.parametrize("name", odd_exceptions(), ids=lambda name: name[:20])
@pytest.mark.parametrize("kind", ["sync", "async", "task"])
def test_any_exception_that_user_code_raises_is_the_steps_failure(name: str, kind: str) -> None:
    error = next(error for key, error in odd_exceptions().items() if key == name)

    async def awaited() -> None:
        await asyncio.sleep(0)
        raise error

    async def in_a_task() -> None:
        await asyncio.create_task(awaited())

    found = failure({"sync": raises(error), "async": awaited, "task": in_a_task}[kind])
    stop_iteration = name == "StopIteration" and kind != "sync"  # Python itself makes that of it
    cancelled = found.error["type"] in (name, "CancelledError") if kind == "task" else False
    assert stop_iteration or cancelled or found.error["type"].rpartition(".")[2] == name
    assert (found.behavior or "stop", found.max_attempts, found.backoff) == ("stop", None, None)
    assert "\x00" not in json.dumps(found.error)
    assert outcome(later) == Success("2")  # type: ignore[arg-type]


async def later() -> int:
    await asyncio.sleep(0)
    return 2


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell has started the tests in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_is_not_the_steps_failure() -> None:
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        outcome(interrupted)
    assert signal.getsignal(signal.SIGINT) is before


def test_nor_is_what_the_handler_of_a_pool_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(number: int, frame: Any) -> None:
        raise SystemExit(number)

    before = signal.signal(signal.SIGUSR2, leaves)
    try:
        with pytest.raises(SystemExit):
            outcome(lambda: signal.raise_signal(signal.SIGUSR2))
        assert failure(raises(SystemExit(3))).error["type"] == "SystemExit"
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_during_an_async_step_cancels_it() -> None:
    cancelled = threading.Event()

    async def waits() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        outcome(waits)
    assert cancelled.wait(10)
