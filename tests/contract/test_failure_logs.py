"""What is logged of failures: a line in the worker's log and an entry with the traceback in the run's log, per failed
attempt; and a line per failed run.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rival_client.model.run_entries import LogEntry
from rival_workers import ChildFailed, StepError, StepFailed, branch, flow, for_each, loop, parallel, step
from rival_workers.engine import interpreter
from rival_workers.runtime.attempt.position import Position
from rival_workers.store.claim_records import Claim
from tests.support.inline import Inline
from tests.support.output import as_expected, is_printed
from tests.support.workers import lines_like


def boom() -> None:
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("no money, password=hunter2") from error


#: What is logged of it, with its place.
ERROR = (
    "ValueError: no money, password=*** "
    f"(tests/contract/test_failure_logs.py:{boom.__code__.co_firstlineno + 4} in boom)"
)


def ok() -> int:
    return 1


def carry_out(inline: Inline, *steps: Any, **options: Any) -> str:
    inline.define("w", *steps, **options)
    inline.rival.run("w", None, "r")
    inline.drain()
    return "r"


def failures(inline: Inline) -> list[LogEntry]:
    return [entry for entry in inline.rival.logs("r") if "traceback" in entry.fields]


def logged(caplog: pytest.LogCaptureFixture, name: str = "rival.steps") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


#: "~" marks the place in the line since Python 3.11.
TRACEBACK = """\
Traceback (most recent call last):
  File "…/tests/contract/test_failure_logs.py", line …, in boom
    {}["key"]
    …
KeyError: 'key'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "…/tests/contract/test_failure_logs.py", line …, in boom
    raise ValueError("no money, password=…") from error
ValueError: no money, password=***
"""


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rival")


def test_a_failed_attempt_is_one_line_with_its_place_and_an_entry_with_its_traceback(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    carry_out(inline, ok, boom)
    assert logged(caplog) == [f"w.boom run=r attempt 1 of 1 failed, no retry: {ERROR}"]
    assert logged(caplog, "rival.runs") == [f"run r of w failed at step boom: {ERROR}"]
    [entry] = failures(inline)
    assert (entry.level, entry.path, entry.attempt) == ("error", "boom", 1)
    assert entry.message == f"attempt 1 of 1 failed, no retry: {ERROR}"
    trace = entry.fields["traceback"]
    assert as_expected(TRACEBACK, trace) == TRACEBACK


def test_the_structured_line_has_the_parts(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    carry_out(inline, boom)
    [record] = [r for r in caplog.records if r.name == "rival.steps"]
    parts = record.rival  # type: ignore[attr-defined]
    assert (parts["run"], parts["workflow"], parts["step"], parts["attempt"]) == ("r", "w", "boom", 1)
    assert parts["error"] == {"type": "ValueError", "message": "no money, password=***"}
    assert parts["fields"]["traceback"].startswith("Traceback")


def test_attempts_that_are_retried_say_when_and_keep_their_tracebacks(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    def flaky(run: Any) -> None:
        raise StepError(f"try {run.attempt}", behavior="retry")

    carry_out(inline, step(flaky, max_attempts=3, backoff="none"))
    lines = logged(caplog)
    assert [line.partition(": ")[0].removeprefix("w.flaky run=r ") for line in lines] == [
        "attempt 1 of 3 failed, next attempt in 0 s",
        "attempt 2 of 3 failed, next attempt in 0 s",
        "attempt 3 of 3 failed, no retry",
    ]
    assert [entry.level for entry in failures(inline)] == ["warning", "warning", "error"]
    kept = [(one.attempt, (one.error or {})["traceback"]) for one in inline.rival.state("r").attempts]
    assert [number for number, _ in kept] == [1, 2, 3]
    line = flaky.__code__.co_firstlineno + 1
    for number, trace in kept:
        assert trace.splitlines() == [
            "Traceback (most recent call last):",
            f'  File "{__file__}", line {line}, in flaky',
            '    raise StepError(f"try {run.attempt}", behavior="retry")',
            f"rival_workers.errors.StepError: try {number}",
        ]


def test_an_exception_that_asks_for_no_retry_says_so_when_there_were_attempts_left(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    carry_out(inline, step(boom, max_attempts=3))
    why = "that takes StepError(behavior='retry'), max_retries or retry_on"
    assert logged(caplog) == [f"w.boom run=r attempt 1 of 3 failed, not retried: {why}: {ERROR}"]


@pytest.mark.parametrize(
    ("options", "of_run", "why"),
    [
        ({"retry_budget": 0}, {}, "the run has used its retry_budget of 0"),
        ({"base_delay": 30}, {"deadline": 20}, "the next attempt would begin in 30 s, but the deadline is over in … s"),
    ],
    ids=["budget", "deadline"],
)
def test_the_log_says_why_a_retry_that_is_due_is_not_made(
    inline: Inline, caplog: pytest.LogCaptureFixture, options: Any, of_run: Any, why: str
) -> None:
    inline.define("w", step(boom, max_retries=2, **options))
    inline.rival.run("w", None, "r", **of_run)
    inline.drain()
    [line] = logged(caplog)
    assert lines_like(line, f"w.boom run=r attempt 1 of 3 failed, not retried: {why}: {ERROR}") == [line]


def test_a_soft_failure_says_that_the_run_continues(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    def soft() -> None:
        raise StepError("whatever", behavior="continue")

    carry_out(inline, soft, ok)
    place = f"(tests/contract/test_failure_logs.py:{soft.__code__.co_firstlineno + 1} in soft)"
    said = f"attempt 1 of 1 failed, the run continues: StepError: whatever {place}"
    assert logged(caplog) == [f"w.soft run=r {said}"]
    assert logged(caplog, "rival.runs") == []
    assert [entry.level for entry in failures(inline)] == ["warning"]


def test_handlers_compensations_and_conditions_are_logged_with_their_own_place(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    def handler() -> None:
        raise RuntimeError("handler")

    def undo() -> None:
        raise RuntimeError("undo")

    def when() -> bool:
        raise RuntimeError("condition")

    carry_out(inline, step(ok, compensate=undo), branch("b", when=when, then=[ok]), on_error=handler)
    places = {
        function.__name__: f"tests/contract/test_failure_logs.py:{function.__code__.co_firstlineno + 1}"
        for function in (when, undo, handler)
    }
    why = {
        "b!when": ("when", "failed, no retry: RuntimeError: condition"),
        "ok!compensate": ("undo", "failed, so this step is not undone: RuntimeError: undo"),
        "!on_error": ("handler", "failed, the outcome of the run does not change: RuntimeError: handler"),
    }
    assert sorted(logged(caplog)) == sorted(
        f"w.{path} run=r attempt 1 of 1 {said} ({places[function]} in {function})"
        for path, (function, said) in why.items()
    )
    for entry in failures(inline):
        function, said = why[entry.path or ""]
        line = places[function].partition(":")[2]
        expected = [
            "Traceback (most recent call last):",
            f'  File "{__file__}", line {line}, in {function}',
            "    raise RuntimeError(…)",
            said.partition(": ")[2],
        ]
        trace = entry.fields["traceback"]
        assert is_printed(expected, trace.splitlines()), trace
    assert [line.partition(": ")[0] for line in logged(caplog, "rival.runs")] == ["run r of w failed at step b!when"]


def test_steps_within_composites_are_named_by_their_paths(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    def items() -> list[int]:
        return [1]

    def again() -> bool:
        return False

    inner = loop("l", do=[boom], until=again, max_iterations=3)
    carry_out(inline, parallel("p", [for_each("f", items=items, do=[inner])]))
    assert [entry.path for entry in failures(inline)] == ["p/f[0]/l[0]/boom"]
    assert logged(caplog, "rival.runs")[0].startswith("run r of w failed at step p/f[0]/l[0]/boom: ValueError")


def test_a_timeout_is_logged_with_the_place_of_the_function(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    slow = step(ok, name="slow", timeout=5)
    inline.define("w", slow)
    inline.rival.run("w", None, "r")
    [step_message] = inline.doorbell.take()
    definition = inline.registry.find("w", step_message.version)
    assert definition is not None
    inline.store.begin_run("r", 0, interpreter.first(definition.plan), claim_for="gone")
    claim = Claim("r", "slow", 1, "timeout_token")
    assert inline.coordinator.transitions.time_out(
        Position(claim, "w", step_message.version, definition.policies, 1, 0, "step")
    )
    [line] = logged(caplog)
    in_ok = f"(tests/contract/test_failure_logs.py:{ok.__code__.co_firstlineno} in ok)"
    said = f"attempt 1 of 1 timed out, no retry: StepTimeout: attempt 1 took longer than its timeout of 5 s {in_ok}"
    assert line == f"w.slow run=r {said}"
    assert [one.message for one in inline.rival.logs("r")] == [said]
    assert len(logged(caplog, "rival.runs")) == 1


def test_a_late_failure_is_not_logged_as_one_that_counts(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    def cancelled() -> None:
        inline.rival.cancel("r")
        raise ValueError("too late")

    carry_out(inline, cancelled)
    assert logged(caplog) == []
    assert logged(caplog, "rival.runs") == []


def test_a_completed_run_logs_nothing(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    carry_out(inline, ok, parallel("p", [step(ok, name="a"), step(ok, name="b")]))
    assert [logged(caplog, name) for name in ("rival.steps", "rival.runs")] == [[], []]
    assert inline.rival.logs("r") == []


# -- flows ------------------------------------------------------------------------------------------------


def test_a_failed_step_of_a_flow_is_logged_with_its_own_place(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    @flow("fl", register=False)
    def fl(ctx: Any) -> int:
        ctx.step(ok)
        return int(ctx.step(boom))

    carry_out(inline, fl)
    in_fl = f"(tests/contract/test_failure_logs.py:{fl.function.__code__.co_firstlineno + 3} in fl)"
    assert logged(caplog) == [
        f"w.fl/boom run=r attempt 1 of 1 failed, no retry: {ERROR}",
        f"w.fl run=r attempt 1 of 1 failed, no retry: StepFailed: fl/boom: ValueError: no money, password=*** {in_fl}",
    ]
    assert [entry.path for entry in failures(inline)] == ["fl/boom", "fl"]
    trace = failures(inline)[0].fields["traceback"]
    assert as_expected(TRACEBACK, trace) == TRACEBACK
    assert len(logged(caplog, "rival.runs")) == 1
    state = inline.rival.state("r")
    assert "hunter2" not in repr(state)


def test_a_step_of_a_flow_that_is_retried_logs_each_attempt_once(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    def flaky() -> None:
        raise StepError("again", behavior="retry")

    @flow("fl", register=False)
    def fl(ctx: Any) -> str:
        try:
            ctx.step(flaky, max_attempts=3, backoff="none")
        except StepFailed:
            ctx.step(ok)
        return "caught"

    carry_out(inline, fl)
    for _ in range(5):
        inline.keeper.run_once()
        inline.drain()
    assert inline.rival.result("r").result == "caught"
    assert [line.partition(": ")[0].removeprefix("w.fl/flaky run=r ") for line in logged(caplog)] == [
        "attempt 1 of 3 failed, next attempt in 0 s",
        "attempt 2 of 3 failed, next attempt in 0 s",
        "attempt 3 of 3 failed, no retry",
    ]
    assert [(entry.path, entry.attempt) for entry in failures(inline)] == [("fl/flaky", n) for n in (1, 2, 3)]


def test_a_run_that_fails_because_of_a_child_names_the_child_and_its_step(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    inline.define("child", boom)

    @flow("fl", register=False)
    def fl(ctx: Any) -> None:
        ctx.call("child")

    carry_out(inline, fl)
    in_fl = f"(tests/contract/test_failure_logs.py:{fl.function.__code__.co_firstlineno + 2} in fl)"
    child = "child run 'r/call:child' failed at step 'boom': ValueError: no money, password=***"
    assert logged(caplog, "rival.runs") == [
        f"run r/call:child of child failed at step boom: {ERROR}",
        f"run r of w failed at step fl: ChildFailed: fl/call:child: {child} {in_fl}",
    ]
    assert str((inline.rival.result("r").error or {})["message"]) == (
        "fl/call:child: child run 'r/call:child' failed at step 'boom': ValueError: no money, password=***"
    )


def test_a_flow_that_catches_a_failed_child_knows_which_and_where(inline: Inline) -> None:
    inline.define("child", boom)

    @flow("fl", register=False)
    def fl(ctx: Any) -> Any:
        spawned = ctx.spawn("child")
        try:
            ctx.call("child")
        except ChildFailed as error:
            found = [error.child_run, error.child_step]
        try:
            spawned.result()
        except ChildFailed as error:
            return [*found, error.child_run, error.child_step]

    carry_out(inline, fl)
    assert inline.rival.result("r").result == ["r/call:child", "boom", "r/spawn:child", "boom"]
