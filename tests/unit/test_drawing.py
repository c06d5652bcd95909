"""A plan as a tree, as a flowchart, and what changed between two."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rival_workers import branch, create_workflow, for_each, loop, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.drawing import differences as differing
from rival_workers.drawing import plan_charts as trees
from rival_workers.drawing.differences import Changed, Moved, differences
from rival_workers.drawing.plan_charts import escaped, mermaid
from rival_workers.drawing.plan_outline import outline
from rival_workers.drawing.run_charts import RunTree
from rival_workers.engine.nodes import BranchNode, ForEachNode, ParallelNode, StepNode
from rival_workers.engine.plan import Plan


def work() -> None: ...
def is_true() -> bool:
    return True


def items() -> list[int]:
    return []


def named(name: str, **options: Any) -> Any:
    return step(work, name=name, **options)


def defined(*steps: Any, on_error: Any = None) -> WorkflowDefinition:
    return define_workflow("w", list(steps), on_error=on_error)


def plan_of(*steps: Any, on_error: Any = None) -> Plan:
    return defined(*steps, on_error=on_error).plan


BILLING = create_workflow("billing").step(work, name="charge").on_error(work).build()
CAN_BE_UNDONE = named("reserve", compensate=work)
ALL_DEFINED = defined(
    named("check", timeout=60, max_attempts=3, backoff="exponential", on_error=work),
    branch("valid?", when=is_true, then=[CAN_BE_UNDONE, named("pack")], otherwise=[named("refuse")]),
    branch("big?", when=is_true, then=named("ask"), timeout=5),
    parallel("tell", [named("mail"), [named("draw"), named("print")]], on_failure="wait"),
    for_each("lines", items=items, do=[named("pick")], concurrency=8, on_failure="continue", collect=False),
    loop("pages", do=[named("fetch")], until=is_true, max_iterations=10),
    loop("polls", do=[named("poll")], max_iterations=3),
    workflow(BILLING, name="pay", propagate_failure=False),
    on_error=work,
)
EVERYTHING, OPTIONS = ALL_DEFINED.plan, ALL_DEFINED.policies.shown()
DRAWN = """\
├─ check  on_error, timeout=60, max_attempts=3, backoff=exponential
├─ valid?  branch
│  ├─ then
│  │  ├─ reserve  compensate
│  │  └─ pack
│  └─ otherwise
│     └─ refuse
├─ big?  branch, timeout=5
│  └─ then
│     └─ ask
├─ tell  parallel, on_failure=wait
│  ├─ mail
│  └─ lane 2
│     ├─ draw
│     └─ print
├─ lines  for_each, concurrency=8, on_failure=continue, collect=False
│  └─ pick
├─ pages  loop until, max_iterations=10
│  └─ fetch
├─ polls  loop, max_iterations=3
│  └─ poll
├─ pay  workflow billing, on_error, propagate_failure=False
│  └─ charge
└─ !on_error  handler of the workflow"""


def test_a_tree_shows_every_kind_of_node_with_the_options_that_are_not_the_defaults() -> None:
    assert "\n".join(trees.lines(outline(EVERYTHING, OPTIONS))) == DRAWN


# -- flowcharts -------------------------------------------------------------------------------------------

NODE = re.compile(r'^(?:subgraph )?(\w+)(?:\[|\(\[|\{)"')
ARROW = re.compile(r"^(\w+) -(?:->|\.->)(?:\|[^|]*\|)? (\w+)$")


def test_a_flowchart_has_every_node_once_and_an_arrow_to_each_that_follows_another() -> None:
    lines = [line.strip() for line in mermaid("w", EVERYTHING).splitlines()]
    assert lines[0] == "flowchart TD"
    nodes = [found[1] for line in lines if (found := NODE.match(line))]
    arrows = [found.groups() for line in lines if (found := ARROW.match(line))]
    assert len(nodes) == len(set(nodes)) == len(EVERYTHING.places) + 3  # start, finish, handler
    assert {end for arrow in arrows for end in arrow} <= set(nodes)
    assert len(nodes) + len(arrows) + 1 + lines.count("end") == len(lines), "a line of another form"
    assert sum(line.startswith("subgraph") for line in lines) == lines.count("end") == 5


def test_both_sides_of_a_branch_lead_to_what_comes_after_it() -> None:
    drawn = mermaid("w", plan_of(branch("b?", when=is_true, then=named("yes")), named("after")))
    assert [line.strip() for line in drawn.splitlines()] == [
        "flowchart TD",
        'start(["w"])',
        'n1{"b?<br/>branch"}',
        "start --> n1",
        'n2["yes"]',
        'n1 -->|"then"| n2',
        'n3["after"]',
        "n2 --> n3",
        'n1 -->|"otherwise"| n3',
        'finish(["done"])',
        "n3 --> finish",
    ]


def test_what_could_end_a_label_or_be_markup_is_escaped() -> None:
    first = mermaid('a "b" <script>\n#x', plan_of(work)).splitlines()[1]
    assert first == '  start(["a #34;b#34; #60;script#62; #35;x"])'
    assert not set(escaped('"<>`\\&')) & set('"<>`\\')


# -- differences ------------------------------------------------------------------------------------------


def test_the_same_plan_has_no_differences() -> None:
    found = differences(EVERYTHING, Plan.load(EVERYTHING.model_dump(mode="json")))
    assert not found
    assert differing.lines(found) == []


def test_what_was_added_and_removed_is_named_by_its_place() -> None:
    old = plan_of(named("a"), for_each("each", items=items, do=[named("x")]))
    new = plan_of(for_each("each", items=items, do=[named("x"), named("y")]), named("z"))
    found = differences(old, new)
    assert (found.added, found.removed, found.moved, found.changed) == (["each[]/y", "z"], ["a"], [], [])
    assert differing.lines(found) == ["+ each[]/y", "+ z", "- a"]


def test_changed_options_are_shown_with_their_old_and_new_values() -> None:
    old = defined(named("a", timeout=10, max_attempts=2))
    new = defined(named("a", timeout=60, backoff="jitter"), on_error=work)
    found = differences(old.plan, new.plan, old.policies.shown(), new.policies.shown())
    assert found.changed == [
        Changed("", {"on_error": (None, True)}),
        Changed("a", {"timeout": (10, 60), "max_attempts": (2, None), "backoff": (None, "jitter")}),
    ]
    assert differing.lines(found) == [
        "~ (the workflow)  on_error: default → True",
        "~ a  timeout: 10 → 60, max_attempts: 2 → default, backoff: default → jitter",
    ]


def test_a_step_that_can_be_undone_now_has_changed() -> None:
    found = differences(plan_of(named("a")), plan_of(named("a", compensate=work)))
    assert differing.lines(found) == ["~ a  compensate: default → True"]


def test_only_steps_that_have_moved_are_reported_as_moved() -> None:
    old, new = plan_of(*map(named, "abcde")), plan_of(*map(named, "aecbd"))
    assert {one.path for one in differences(old, new).moved} == {"e", "c"}
    assert differing.lines(differences(old, new))[0] == "> e  now after a"


def test_a_step_that_went_into_a_composite_has_moved_there() -> None:
    old = defined(named("a"), named("b", timeout=1))
    new = defined(named("a"), branch("if?", when=is_true, then=[named("b", timeout=2)]))
    found = differences(old.plan, new.plan, old.policies.shown(), new.policies.shown())
    assert (found.added, found.removed) == (["if?"], [])
    assert found.moved == [Moved("if?/b", "b")]
    assert found.changed == [Changed("if?/b", {"timeout": (1, 2)})]


def test_steps_within_a_moved_composite_are_not_reported_again() -> None:
    each = for_each("each", items=items, do=[named("x"), named("y")])
    found = differences(plan_of(each, named("z")), plan_of(loop("l", do=[each], max_iterations=2), named("z")))
    assert [one.path for one in found.moved] == ["l[]/each"]


def test_another_side_of_a_branch_and_another_lane_are_moves() -> None:
    old = plan_of(branch("if?", when=is_true, then=[named("a"), named("b")], otherwise=[named("c")]))
    new = plan_of(branch("if?", when=is_true, then=[named("a")], otherwise=[named("b"), named("c")]))
    assert differences(old, new).moved == [Moved("if?/b", "if?/b", "from then to otherwise")]
    old, new = plan_of(parallel("p", [named("a"), named("b")])), plan_of(parallel("p", [[named("a"), named("b")]]))
    assert differences(old, new).moved == [Moved("p/a", "p/a", "from the lane of a to the lane of b")]


def test_another_kind_under_the_same_name_is_a_change() -> None:
    found = differences(plan_of(named("a")), plan_of(loop("a", do=[named("x")], max_iterations=2)))
    assert found.changed[0].options["kind"] == ("step", "loop")


@st.composite
def plan_bodies(draw: st.DrawFn, depth: int = 2, names: str = "abcd") -> Any:
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return tuple(draw(nodes(name, depth)) for name in chosen)


@st.composite
def nodes(draw: st.DrawFn, name: str, depth: int) -> Any:
    kind = draw(st.sampled_from(["step", "branch", "parallel", "for_each"] if depth else ["step"]))
    on_error = draw(st.booleans())
    if kind == "step":
        return StepNode(name=name, on_error=on_error, external=draw(st.booleans()))
    one, other = draw(plan_bodies(depth - 1)), draw(plan_bodies(depth - 1, "wxyz"))
    if kind == "branch":
        return BranchNode(type="branch", name=name, then=one, otherwise=draw(st.sampled_from([(), other])))
    if kind == "parallel":
        lanes = draw(st.permutations([one, other]))
        return ParallelNode(type="parallel", name=name, branches=tuple(lanes))
    return ForEachNode(type="for_each", name=name, do=one, concurrency=draw(st.integers(1, 2)))


@pytest.mark.slow
@settings(deadline=None)
@given(plan_bodies(), plan_bodies(), st.booleans(), st.booleans())
def test_two_plans_have_no_differences_if_and_only_if_they_are_the_same(a: Any, b: Any, one: bool, other: bool) -> None:
    old, new = Plan(nodes=a, on_error=one), Plan(nodes=b, on_error=other)
    assert bool(differences(old, new)) == (old.version != new.version)
    assert not differences(old, Plan.load(old.model_dump(mode="json")))


# Without a deadline: on a loaded machine an example may take longer.
@settings(deadline=None)
@given(st.permutations("abcdef"))
def test_what_did_not_move_is_in_the_same_order_as_before(order: list[str]) -> None:
    old, new = plan_of(*map(named, "abcdef")), plan_of(*map(named, order))
    moved = {one.path for one in differences(old, new).moved}
    stayed = [name for name in order if name not in moved]
    assert stayed == sorted(stayed)


@pytest.mark.parametrize(
    ("numbers", "rise"),
    [([], []), ([1], [1]), ([3, 1, 2], [1, 2]), ([1, 2, 3], [1, 2, 3]), ([5, 1, 6, 2, 3], [1, 2, 3])],
)
def test_the_longest_rise_is_found(numbers: list[int], rise: list[int]) -> None:
    assert differing._longest_rise(numbers) == set(rise)


# -- runs -------------------------------------------------------------------------------------------------

ROWS = [
    (0, "check"),
    (1, "check!on_error"),
    (0, "valid?"),
    (1, "valid?!when"),
    (1, "valid?/reserve"),
    (2, "valid?/reserve!compensate"),
    (1, "valid?/pack"),
    (2, "valid?/pack!on_error"),
    (0, "tell"),
    (1, "tell/mail"),
    (1, "tell/draw"),
    (1, "tell/print"),
    (0, "lines"),
    (1, "lines!items"),
    (1, "lines[2]"),
    (2, "lines[2]/pick"),
    (1, "lines[10]"),
    (2, "lines[10]/pick"),
    (1, "lines!on_error"),
    (0, "pages"),
    (1, "pages[0]/fetch"),
    (2, "pages[0]/fetch!on_error"),
    (1, "pages[0]!until"),
    (1, "pages[1]/fetch"),
    (0, "pay"),
    (1, "pay!input"),
    (1, "pay/charge"),
    (1, "pay!compensate"),
    (1, "pay!on_error"),
    (0, "!compensate"),
    (0, "!on_error"),
]


@given(st.permutations([path for _, path in ROWS]))
def test_a_runs_rows_stand_in_the_order_of_the_plan_with_what_hangs_on_them(shuffled: list[str]) -> None:
    tree = RunTree(EVERYTHING)
    assert [(tree.depth(path), path) for path in sorted(shuffled, key=tree.key)] == ROWS


def test_rows_of_an_unknown_plan_can_be_ordered_all_the_same() -> None:
    tree = RunTree(Plan(nodes=()))
    assert sorted(["b", "a[1]/x", "a[0]/x", "!on_error", "a"], key=tree.key)
