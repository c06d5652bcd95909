"""What comes after some steps: the same as if each were looked at by itself, as the words say it."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from rival_workers import branch, for_each, loop, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.engine import paths
from rival_workers.engine.nodes import LoopNode
from rival_workers.engine.plan import Plan
from rival_workers.engine.rewind_plan import Downstream


def work() -> None: ...


def named(*names: str) -> list[object]:
    return [step(work, name=name) for name in names]


PLAN = define_workflow(
    "w",
    [
        *named("a", "b"),
        branch("if", when=lambda: True, then=named("c", "d"), otherwise=named("e", "f")),
        parallel("both", [named("g", "h"), [*named("i"), loop("turns", do=named("j", "k"), until=lambda: True)]]),
        for_each("all", items=list, do=[*named("l"), workflow(define_workflow("v", named("m", "n")))]),
        *named("o"),
    ],
).plan
STEPS = [
    "a",
    "b",
    "if",
    "if/c",
    "if/d",
    "both",
    "both/g",
    "both/h",
    "both/i",
    "both/turns",
    *(f"both/turns[{turn}]/{name}" for turn in range(12) for name in "jk"),
    "all",
    *(f"all[{item}]/{name}" for item in range(3) for name in ("l", "v", "v/m", "v/n")),
    "o",
]
ROWS = [
    *STEPS,
    *(f"{one}!on_error" for one in STEPS),
    *(f"{one}!compensate" for one in STEPS),
    "if!when",
    "all!items",
    *(f"all[{item}]" for item in range(3)),
    *(f"both/turns[{turn}]!until" for turn in range(12)),
    "!on_error",
]


def reference(plan: Plan, path: str) -> Iterable[str]:
    """A step, all that comes after it in its sequence, and so on for what is around it."""
    yield from (at for at in ROWS if at == "!on_error" or is_below(at, path))
    here = path
    while here:
        place, scope = plan.place(here), paths.scope_of(here)
        later = [scope + node.name for node in place.body[place.position + 1 :]]
        yield from (at for at in ROWS if any(is_below(at, one) for one in later))
        here, turn = paths.above(here)
        yield from (at for at in ROWS if here and at == f"{here}!on_error")
        if turn is not None and isinstance(plan.place(here).node, LoopNode):
            begins = [f"{here}[{n}]" for n in range(turn + 1, 12)]
            yield from (at for at in ROWS if at.startswith((*begins, f"{here}[{turn}]!until")))


def is_below(path: str, scope: str) -> bool:
    return path == scope or path.startswith((f"{scope}/", f"{scope}[", f"{scope}!"))


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=4, unique=True))
def test_what_comes_after_several_steps_is_what_comes_after_each_of_them(steps: list[str]) -> None:
    each = {path: set(reference(PLAN, path)) for path in steps}
    after = Downstream(PLAN, steps)
    assert {row for row in ROWS if row in after} == set().union(*each.values())
    assert list(after.earliest) == [
        path for path in steps if not any(path in each[other] for other in steps if other != path)
    ]


def test_what_is_around_the_steps_is_known() -> None:
    after = Downstream(PLAN, ["both/turns[3]/k", "all[2]/v/m"])
    assert after.around == {"both", "both/turns", "both/turns[3]", "all", "all[2]", "all[2]/v"}
