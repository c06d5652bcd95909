"""A gallery of control flow: every composite, alone and within the others, with what must come of it.

Loaded by real workers as a workflow file and by tests in process, so that both run the very same things.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from rival_client import RunState
from rival_workers import StepError, branch, create_workflow, for_each, loop, parallel, step, workflow


@dataclass(frozen=True)
class Case:
    """One way through a workflow, and how it must end."""

    workflow: str
    input: Any = None
    status: str = "completed"
    result: Any = None
    failed_step: str | None = None
    #: The rows that must be there, with their statuses; others may be.
    rows: dict[str, str] = field(default_factory=dict)
    #: Paths that must not be there.
    absent: tuple[str, ...] = ()


def assert_as_expected(case: Case, state: RunState) -> None:
    rows = {step.path: step for step in state.steps}
    picture = {path: (step.status, step.result, step.error) for path, step in rows.items()}
    assert (state.status, state.failed_step) == (case.status, case.failed_step), picture
    assert state.result == case.result, picture
    assert {path: rows[path].status if path in rows else None for path in case.rows} == case.rows, picture
    assert [path for path in case.absent if path in rows] == [], picture
    assert [path for path, step in rows.items() if step.completed_at is None] == [], "nothing is left open"


CASES: dict[str, Case] = {}


def case(name: str, of: str, **what: Any) -> None:
    CASES[name] = Case(of, **what)


# -- steps ------------------------------------------------------------------------------------------------


def one() -> int:
    return 1


def two() -> int:
    return 2


def add(last_step: Any) -> Any:
    return (last_step.result or 0) + 1


def boom() -> None:
    raise ValueError("boom")


def soft() -> None:
    raise StepError("never mind", behavior="continue")


def report(error: Any, failed_step: Any) -> str:
    return f"{failed_step.step_name}: {error['message']}"


def flaky(run: Any) -> int:
    if run.attempt < 3:
        raise StepError("not yet", behavior="retry")
    return int(run.attempt)


def wanted(input: Any) -> bool:
    return bool(input["yes"])


def numbers(input: Any) -> list[int]:
    return list(range(input["n"]))


def times_ten(item: int) -> int:
    return item * 10


def with_index(steps: Any, item: int, index: int) -> list[int]:
    return [steps.times_ten.result, item, index]


def fails_at(input: Any, item: int) -> int:
    if item in input["bad"]:
        raise ValueError(f"item {item}")
    # So that all the others do not overtake the bad one.
    time.sleep(0.02)
    return item


def turn(index: int) -> int:
    return index


def enough(steps: Any, input: Any) -> bool:
    return bool(steps.turn.result >= input["last"])


def few(input: Any, index: int) -> bool:
    return bool(index < input["turns"])


def results(*names: str) -> Any:
    return step(lambda steps: {name: steps[name].result for name in names}, name="end")


# -- branch -----------------------------------------------------------------------------------------------

(
    create_workflow("branch")
    .step(one)
    .branch("yes?", when=wanted, then=[add, step(add, name="more")], otherwise=[two])
    .step(results("yes?"))
    .register()
)
case(
    "a branch takes its then",
    "branch",
    input={"yes": True},
    result={"yes?": 3},
    rows={"yes?": "completed", "yes?!when": "completed", "yes?/more": "completed"},
    absent=("yes?/two",),
)
case("a branch takes its otherwise", "branch", input={"yes": False}, result={"yes?": 2}, absent=("yes?/add",))

create_workflow("no-otherwise").step(one).branch("yes?", when=wanted, then=[two]).step(
    results("yes?", "one")
).register()
case(
    "a branch without an otherwise is skipped",
    "no-otherwise",
    input={"yes": False},
    result={"yes?": None, "one": 1},
    rows={"yes?": "skipped"},
    absent=("yes?/two",),
)

create_workflow("branch-last").step(one).branch("yes?", when=wanted, then=[two]).register()
case("a branch at the end gives the run its result", "branch-last", input={"yes": True}, result=2)
case("a branch at the end that is skipped gives none", "branch-last", input={"yes": False}, result=None)

create_workflow("broken-condition").branch("yes?", when=boom, then=[one]).on_error(report).register()
case(
    "a condition that fails fails the run",
    "broken-condition",
    status="failed",
    failed_step="yes?!when",
    rows={"yes?": "failed", "!on_error": "completed"},
    absent=("yes?/one",),
)

create_workflow("patient-condition").branch("yes?", when=flaky, then=[one], max_attempts=3, base_delay=0).register()
case("a condition is retried as a step is", "patient-condition", result=1)

# -- parallel ---------------------------------------------------------------------------------------------

(
    create_workflow("parallel")
    .step(one)
    .parallel("both", [add, [two, step(add, name="after_two")]])
    .step(results("both", "after_two"))
    .register()
)
case("a parallel ends when all its ways have", "parallel", result={"both": {"add": 2, "after_two": 3}, "after_two": 3})

for _mode in ("cancel", "wait", "continue"):
    (
        create_workflow(f"parallel-{_mode}")
        .parallel("both", [boom, [one, two]], on_failure=_mode)  # type: ignore[arg-type]
        .step(results("both"))
        .on_error(report)
        .register()
    )
case(
    "a failure cancels its siblings",
    "parallel-cancel",
    status="failed",
    failed_step="both/boom",
    rows={"both": "failed", "both/boom": "failed", "!on_error": "completed"},
    absent=("end",),
)
case(
    "a failure waits for its siblings",
    "parallel-wait",
    status="failed",
    failed_step="both/boom",
    rows={"both": "failed", "both/two": "completed", "!on_error": "completed"},
    absent=("end",),
)
case(
    "a failure is let go",
    "parallel-continue",
    result={"both": {"boom": None, "two": 2}},
    rows={"both": "completed", "both/boom": "failed"},
    absent=("!on_error",),
)

(
    create_workflow("handled-in-parallel")
    .parallel("both", [step(boom, on_error=report), two], on_failure="wait", on_error=report)
    .register()
)
case(
    "handlers run from the step up",
    "handled-in-parallel",
    status="failed",
    failed_step="both/boom",
    rows={"both/boom!on_error": "completed", "both!on_error": "completed"},
)

# -- for_each ---------------------------------------------------------------------------------------------

for _width in (1, 3):
    (
        create_workflow(f"for-each-{_width}")
        .for_each("all", items=numbers, do=[times_ten, with_index], concurrency=_width)
        .step(results("all"))
        .register()
    )
    case(
        f"each item goes its way, {_width} at a time",
        f"for-each-{_width}",
        input={"n": 5},
        result={"all": [[n * 10, n, n] for n in range(5)]},
        rows={"all[4]": "completed"},
    )
    case(f"no items are no work, {_width} at a time", f"for-each-{_width}", input={"n": 0}, result={"all": []})

for _mode in ("cancel", "wait", "continue"):
    (
        create_workflow(f"for-each-{_mode}")
        .for_each("all", items=numbers, do=[fails_at], concurrency=2, on_failure=_mode)  # type: ignore[arg-type]
        .register()
    )
case(
    "an item's failure cancels the others",
    "for-each-cancel",
    input={"n": 20, "bad": [0]},
    status="failed",
    failed_step="all[0]/fails_at",
    rows={"all": "failed", "all[19]": "cancelled"},
    absent=("all[19]/fails_at",),
)
case(
    "an item's failure lets those finish that have begun",
    "for-each-wait",
    input={"n": 20, "bad": [0]},
    status="failed",
    failed_step="all[0]/fails_at",
    rows={"all": "failed", "all[0]": "failed", "all[1]": "completed", "all[19]": "cancelled"},
    absent=("all[19]/fails_at",),
)
case(
    "an item's failure is let go",
    "for-each-continue",
    input={"n": 4, "bad": [1, 2]},
    result=[0, None, None, 3],
    rows={"all": "completed", "all[1]": "failed", "all[3]": "completed"},
)
case("all items may fail", "for-each-continue", input={"n": 2, "bad": [0, 1]}, result=[None, None])

create_workflow("not-collected").for_each("all", items=numbers, do=[times_ten], collect=False).register()
case("results that no step reads are not collected", "not-collected", input={"n": 3}, result=None)

create_workflow("no-items").for_each("all", items=one, do=[times_ten]).register()
case(
    "what is no list of items fails the run",
    "no-items",
    status="failed",
    failed_step="all!items",
    rows={"all": "failed"},
)

(
    create_workflow("nested-for-each")
    .for_each(
        "rows",
        items=numbers,
        do=[
            for_each(
                "cells",
                items=lambda item: [f"{item}{c}" for c in "ab"],
                do=[step(lambda item: item, name="cell")],
                concurrency=2,
            )
        ],
        concurrency=2,
    )
    .register()
)
case(
    "a for_each within a for_each keeps them apart",
    "nested-for-each",
    input={"n": 2},
    result=[["0a", "0b"], ["1a", "1b"]],
)

# -- loop -------------------------------------------------------------------------------------------------

create_workflow("until").loop("pages", do=[turn, add], until=enough, max_iterations=5).step(results("pages")).register()
case(
    "a loop goes on until it is enough",
    "until",
    input={"last": 2},
    result={"pages": 3},
    rows={"pages[2]!until": "completed"},
    absent=("pages[3]/turn",),
)
case("a loop runs at least once", "until", input={"last": 0}, result={"pages": 1}, absent=("pages[1]/turn",))
case(
    "a loop that does not end fails",
    "until",
    input={"last": 99},
    status="failed",
    failed_step="pages",
    rows={"pages": "failed", "pages[4]!until": "completed"},
    absent=("pages[5]/turn",),
)

create_workflow("while").loop("pages", do=[turn], while_=few, max_iterations=5).step(results("pages")).register()
case("a loop goes on while it must", "while", input={"turns": 3}, result={"pages": 2}, absent=("pages[3]/turn",))
case("a loop may not run at all", "while", input={"turns": 0}, result={"pages": None}, absent=("pages[0]/turn",))
case("a loop may use up its maximum", "while", input={"turns": 5}, result={"pages": 4})
case(
    "a loop may not go beyond its maximum",
    "while",
    input={"turns": 6},
    status="failed",
    failed_step="pages",
    rows={"pages": "failed", "pages[4]/turn": "completed"},
    absent=("pages[5]/turn",),
)

create_workflow("times").loop("pages", do=[turn], max_iterations=3).register()
case("a loop counts", "times", result=2, absent=("pages[3]/turn",))

(
    create_workflow("carried")
    .loop(
        "pages",
        do=[
            step(lambda steps: (steps.next.result or 0) + 1, name="use"),
            step(lambda steps: steps.use.result * 2, name="next"),
        ],
        max_iterations=3,
    )
    .register()
)
case("an iteration sees what the iteration before has left", "carried", result=((0 + 1) * 2 + 1) * 2 * 2 + 2)

# -- nested workflows -------------------------------------------------------------------------------------

payment = create_workflow("payment").step(one, name="charge").step(lambda steps: steps.one.result + 100, name="book")
create_workflow("nested").step(one).workflow(payment).step(results("payment")).register()
case(
    "a nested workflow is one step and sees the steps around it",
    "nested",
    result={"payment": 101},
    rows={"payment": "completed", "payment/charge": "completed"},
)

(
    create_workflow("own-input")
    .step(two)
    .workflow(
        create_workflow("inner").step(lambda input: input, name="echo"), input=lambda steps: {"x": steps.two.result}
    )
    .register()
)
case(
    "a nested workflow may have an input of its own",
    "own-input",
    input={"n": 1},
    result={"x": 2},
    rows={"inner!input": "completed"},
)

failing = create_workflow("failing").step(one).step(boom).step(two).on_error(report)
create_workflow("propagates").workflow(failing).step(two).on_error(report).register()
case(
    "a nested failure stops the run, the inner handler first",
    "propagates",
    status="failed",
    failed_step="failing/boom",
    absent=("two", "failing/two"),
    rows={"failing": "failed", "failing!on_error": "completed", "!on_error": "completed"},
)
create_workflow("absorbs").workflow(failing, propagate_failure=False).step(results("failing")).on_error(
    report
).register()
case(
    "a nested failure that is not propagated is only noted",
    "absorbs",
    result={"failing": None},
    rows={"failing": "failed", "failing!on_error": "completed"},
    absent=("!on_error",),
)

# -- undoing ----------------------------------------------------------------------------------------------


def undo(result: Any, error: Any, run: Any) -> str:
    if run.attempt == 1:
        raise StepError("not yet", behavior="retry")
    return f"{result}: {error['message']}"


def undoable(name: str) -> Any:
    return step(one, name=name, compensate=undo, max_attempts=2, base_delay=0.01)


(
    create_workflow("undone")
    .steps([undoable("a"), for_each("all", items=numbers, do=[undoable("b")], concurrency=2)])
    .parallel("both", [undoable("c"), [undoable("d"), boom]], on_failure="wait")
    .on_error(report)
    .register()
)
case(
    "what was completed is undone before the handler of the workflow",
    "undone",
    input={"n": 2},
    status="failed",
    failed_step="both/boom",
    rows={
        "!compensate": "completed",
        "a!compensate": "completed",
        "all[0]/b!compensate": "completed",
        "all[1]/b!compensate": "completed",
        "both/c!compensate": "completed",
        "both/d!compensate": "completed",
        "!on_error": "completed",
    },
)

undoing = create_workflow("undoing").step(undoable("a")).step(step(one, name="b", compensate=boom)).step(boom)
create_workflow("undone-within").steps([undoable("z"), workflow(undoing, propagate_failure=False)]).step(two).register()
case(
    "a nested workflow that keeps its failure is undone, and the run goes on",
    "undone-within",
    result=2,
    rows={"undoing!compensate": "completed", "undoing/a!compensate": "completed", "undoing/b!compensate": "failed"},
    absent=("!compensate", "z!compensate"),
)

# -- all of it within each other --------------------------------------------------------------------------

(
    create_workflow("everything")
    .step(one)
    .parallel(
        "lanes",
        [
            branch("yes?", when=wanted, then=[for_each("all", items=numbers, do=[times_ten], concurrency=2)]),
            [
                loop("pages", do=[turn, parallel("pair", [one, step(soft, name="hm")])], max_iterations=2),
                workflow(payment),
            ],
        ],
    )
    .step(results("lanes", "all"))
    .register()
)
case(
    "any of them goes within any other",
    "everything",
    input={"yes": True, "n": 3},
    result={"lanes": {"yes?": [0, 10, 20], "payment": 101}, "all": [0, 10, 20]},
    rows={"lanes/pages[1]/pair/hm": "failed", "lanes/pages[1]/pair": "completed"},
)
case(
    "and the ways that are not taken are not",
    "everything",
    input={"yes": False, "n": 3},
    result={"lanes": {"yes?": None, "payment": 101}, "all": None},
)

(
    create_workflow("deep-failure")
    .parallel(
        "outer",
        [[for_each("all", items=numbers, do=[workflow(failing)], on_failure="wait", concurrency=2)], two],
        on_failure="continue",
    )
    .step(results("outer"))
    .register()
)
case(
    "a failure goes up until a composite absorbs it",
    "deep-failure",
    input={"n": 3},
    result={"outer": {"all": None, "two": 2}},
    rows={"outer/all": "failed", "outer/all[0]/failing!on_error": "completed", "outer/all[2]": "cancelled"},
)

create_workflow("retried-in-parallel").parallel("both", [step(flaky, max_attempts=3, base_delay=0.01), two]).register()
case("a step in a parallel is retried like any other", "retried-in-parallel", result={"flaky": 3, "two": 2})
