"""The kinds of rows in `rival_steps`, defined once, with the properties that statements and programs use.

A row is a step of the plan, a composite, a callback of either, or a checkpoint of a flow. To add a kind that waits, see
"a wait kind" in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

STEP: Final = "step"
EXTERNAL: Final = "external"
FLOW: Final = "flow"
SLEEP: Final = "sleep"
WAIT: Final = "wait"
HANDLER: Final = "handler"
SOFT_HANDLER: Final = "soft_handler"
COMPENSATION: Final = "compensation"
FALLBACK: Final = "fallback"
CONDITION: Final = "condition"
ITEMS: Final = "items"
INPUT: Final = "input"
BRANCH: Final = "branch"
PARALLEL: Final = "parallel"
FOR_EACH: Final = "for_each"
LOOP: Final = "loop"
WORKFLOW: Final = "workflow"
ITEM: Final = "item"
COMPENSATING: Final = "compensating"
FLOW_WAIT: Final = "flow_wait"
CHILD: Final = "child"
CHILD_RESULT: Final = "child_result"
VALUE: Final = "value"

#: The path of the row with which workers end a run that was cancelled. Its kind is HANDLER.
CANCEL: Final = "!cancel"

#: Rows that a worker claims.
LeafKind = Literal[
    "step",
    "external",
    "flow",
    "sleep",
    "wait",
    "handler",
    "soft_handler",
    "compensation",
    "fallback",
    "condition",
    "items",
    "input",
]
#: Rows that stand for others: each waits until those have ended.
CompositeKind = Literal["branch", "parallel", "for_each", "loop", "workflow", "item", "compensating"]

WaitsFor = Literal["time", "event", "child", "external", "steps"]


@dataclass(frozen=True)
class RowKind:
    name: str
    #: "leaf": a worker claims it. "checkpoint": a row of a flow's replay, which no worker claims.
    group: Literal["leaf", "composite", "checkpoint"]
    #: What a row of this kind waits for in the status `waiting`; None: it never waits.
    waits_for: WaitsFor | None = None
    #: A node of the plan: its result is among the results of the run.
    has_result: bool = False
    #: Its children run at the same time, so the run is not suspended when one of them waits.
    has_lanes: bool = False
    #: `skip` and `set_result` can end it.
    can_be_settled: bool = False
    #: It can have a compensation.
    can_be_compensated: bool = False
    #: Its attempt is one call of its function, which a test can replace.
    can_be_replaced: bool = False
    #: It runs because something has failed.
    is_reaction: bool = False
    #: Part of how a composite works, not a step that the author of the workflow named.
    is_internal: bool = False
    #: A checkpoint that a rewind opens again with the time that was left.
    keeps_time_left: bool = False


_KINDS = (
    RowKind(STEP, "leaf", has_result=True, can_be_settled=True, can_be_compensated=True, can_be_replaced=True),
    RowKind(
        EXTERNAL,
        "leaf",
        "external",
        has_result=True,
        can_be_settled=True,
        can_be_compensated=True,
        can_be_replaced=True,
    ),
    RowKind(FLOW, "leaf", "time", has_result=True, can_be_settled=True, can_be_compensated=True),
    # Also a checkpoint of a flow.
    RowKind(SLEEP, "leaf", "time", can_be_settled=True, keeps_time_left=True),
    RowKind(WAIT, "leaf", "event", has_result=True, can_be_settled=True),
    RowKind(HANDLER, "leaf", can_be_settled=True, is_reaction=True),
    RowKind(SOFT_HANDLER, "leaf", can_be_settled=True, is_reaction=True),
    RowKind(COMPENSATION, "leaf", can_be_settled=True, is_reaction=True),
    RowKind(FALLBACK, "leaf", can_be_settled=True, is_reaction=True),
    RowKind(CONDITION, "leaf", is_internal=True),
    RowKind(ITEMS, "leaf", is_internal=True),
    RowKind(INPUT, "leaf", is_internal=True),
    RowKind(BRANCH, "composite", "steps", has_result=True),
    RowKind(PARALLEL, "composite", "steps", has_result=True, has_lanes=True),
    RowKind(FOR_EACH, "composite", "steps", has_result=True, has_lanes=True),
    RowKind(LOOP, "composite", "steps", has_result=True),
    RowKind(WORKFLOW, "composite", "steps", has_result=True),
    RowKind(ITEM, "composite", "steps", is_internal=True),
    RowKind(COMPENSATING, "composite", "steps"),
    RowKind(FLOW_WAIT, "checkpoint", "event", keeps_time_left=True),
    RowKind(CHILD, "checkpoint", "child"),
    RowKind(CHILD_RESULT, "checkpoint", "child"),
    RowKind(VALUE, "checkpoint"),
)
KINDS: dict[str, RowKind] = {kind.name: kind for kind in _KINDS}


def _names(has: Callable[[RowKind], bool]) -> tuple[str, ...]:
    return tuple(kind.name for kind in _KINDS if has(kind))


LEAVES = _names(lambda kind: kind.group == "leaf")
COMPOSITE_KINDS = _names(lambda kind: kind.group == "composite")
#: The composites that an author writes: nodes of the plan that consist of others.
COMPOSITES = _names(lambda kind: kind.group == "composite" and kind.has_result)
WITH_LANES = _names(lambda kind: kind.has_lanes)
RESULT_KINDS = _names(lambda kind: kind.has_result)
SETTLEABLE = _names(lambda kind: kind.can_be_settled)
COMPENSABLE = _names(lambda kind: kind.can_be_compensated)
REPLACEABLE = _names(lambda kind: kind.can_be_replaced)
REACTIONS = _names(lambda kind: kind.is_reaction)
INTERNAL = _names(lambda kind: kind.is_internal)
#: Checkpoints of a flow that keep the rest of their time when a rewind or retry opens the flow again.
TIMED_CHECKPOINTS = _names(lambda kind: kind.keeps_time_left)
#: Rows whose `due_at` limits a wait for something else: they are not timers.
LIMITED_WAITS = _names(lambda kind: kind.group == "leaf" and kind.waits_for in ("event", "external"))


def waits_for(kind: str) -> WaitsFor | None:
    found = KINDS.get(kind)
    return found.waits_for if found else None
