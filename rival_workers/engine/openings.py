"""The rows that open when a node of a plan begins. Pure: it does not know the options of steps."""

from __future__ import annotations

from typing import Any

from rival_client.model import kinds
from rival_workers.engine.effects import OpenRow, WaitFor
from rival_workers.engine.nodes import (
    Body,
    BranchNode,
    FlowNode,
    ForEachNode,
    LoopNode,
    ParallelNode,
    SleepNode,
    StepNode,
    WaitNode,
    WorkflowNode,
)
from rival_workers.engine.plan import Plan


def open_at(plan: Plan, path: str) -> tuple[OpenRow, ...]:
    """The rows that open when the node at this path begins."""
    return open_node(plan.place(path).node, path)


def open_body(body: Body, scope: str) -> tuple[OpenRow, ...]:
    return open_node(body[0], scope + body[0].name)


def open_node(node: Any, path: str) -> tuple[OpenRow, ...]:
    match node:
        case StepNode():
            return (OpenRow(path, kinds.EXTERNAL if node.external else kinds.STEP),)
        case FlowNode():
            return (OpenRow(path, kinds.FLOW),)
        case WaitNode(own_key=True):
            return (OpenRow(f"{path}!key", kinds.INPUT),)
        case WaitNode():
            return (waiting(node, path, node.key),)
        case SleepNode():
            return (OpenRow(path, kinds.SLEEP, delay=node.seconds),)
        case BranchNode():
            return OpenRow(path, kinds.BRANCH), OpenRow(f"{path}!when", kinds.CONDITION)
        case ParallelNode():
            branches = (open_body(body, f"{path}/") for body in node.branches)
            lanes = OpenRow(path, kinds.PARALLEL, lanes=len(node.branches))
            return lanes, *(opening for branch in branches for opening in branch)
        case ForEachNode():
            return OpenRow(path, kinds.FOR_EACH), OpenRow(f"{path}!items", kinds.ITEMS)
        case LoopNode():
            return OpenRow(path, kinds.LOOP), *begin_iteration(node, path, 0)
        case WorkflowNode():
            asked = (OpenRow(f"{path}!input", kinds.INPUT),)
            return OpenRow(path, kinds.WORKFLOW), *(asked if node.own_input else open_body(node.body, f"{path}/"))
    raise AssertionError(f"{path}: no such kind of node: {node!r}")


def begin_iteration(loop: LoopNode, path: str, iteration: int) -> tuple[OpenRow, ...]:
    if loop.mode == "while":
        return (OpenRow(f"{path}[{iteration}]!while", kinds.CONDITION),)
    return open_body(loop.do, f"{path}[{iteration}]/")


def waiting(node: WaitNode, path: str, key: str | None) -> OpenRow:
    return OpenRow(path, kinds.WAIT, wait=WaitFor(node.topic, key, node.where, node.timeout))
