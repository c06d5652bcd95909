"""How each workflow of the load must end, computed from its input: status, result, failed step, and which effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Input = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """How a run must end, and the paths that must have been executed at least once, and no others."""

    status: str
    result: Any
    effects: frozenset[str]
    failed_step: str | None = None
    #: Attempts of steps that neither faults nor timeouts can change.
    attempts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One workflow of the load."""

    workflow: str
    weight: int
    make_input: Callable[[Random], Input]
    expect: Callable[[str, Input], Expected]
    #: What operators may do to its runs.
    verbs: tuple[str, ...] = ("pause",)
    #: Whether it awaits the event `paid` with its run id as the key.
    awaits: bool = False


def _n(random: Random) -> Input:
    return {"n": random.randrange(2, 12)}


# -- plain --------------------------------------------------------------------------------------------------


def _plain_input(random: Random) -> Input:
    seconds = random.choice([0.0, 0.0, 0.05, 0.5])
    return {"n": random.randrange(100), "fails": random.randrange(3), "slow": random.random() < 0.1, "seconds": seconds}


def _plain(run_id: str, input: Input) -> Expected:
    steps = ("first", "flaky", "slow_at_first", "awaited", "left_out", "last")
    value = (input["n"] + 1) * 4 + 5 + 3
    return Expected("completed", {"value": value}, frozenset(steps), attempts={"flaky": input["fails"] + 1, "last": 1})


# -- fan ----------------------------------------------------------------------------------------------------


def _fan(run_id: str, input: Input) -> Expected:
    n, few = input["n"], range(input["n"] % 4)
    result = {
        "squares": sum(i * i for i in range(n)),
        "others": [None if i % 3 == 2 else i for i in few],
        "ways": {"one": 1, "deep": [{"one": 1, "two": 2} for _ in few]},
        "turns": 2,
        "inner": 2,
    }
    effects = {f"squares[{i}]/{name}" for i in range(n) for name in ("square", "again")}
    effects |= {f"others[{i}]/but_not_each_third" for i in few}
    effects |= {"ways/one", "ways/two"} | {
        f"ways/deep[{i}]/{name}" for i in few for name in ("square", "pair/one", "pair/two")
    }
    effects |= {f"turns[{i}]/turn" for i in range(3)} | {"inner/pair/one", "inner/pair/two", "inner/after", "total"}
    return Expected("completed", result, frozenset(effects))


# -- saga ---------------------------------------------------------------------------------------------------


def undone_steps(input: Input) -> set[str]:
    """The steps of a saga that have a compensation."""
    return {"reserve", "charge", "papers/bill", "papers/label"} | {f"parcels[{i}]/pack" for i in range(input["n"] % 4)}


def _saga(run_id: str, input: Input) -> Expected:
    done = undone_steps(input)
    effects = done | {f"{path}!compensate" for path in done} | {"ship", "!on_error"}
    return Expected("failed", None, frozenset(effects), "ship", {"charge!compensate": 2})


# -- order and journey --------------------------------------------------------------------------------------


def price(input: Input) -> dict[str, int]:
    """What the vendor answers, and what an operator settles its step with."""
    return {"price": amount(input) * 3}


def amount(input: Input) -> int:
    """The payload of the event that a run awaits."""
    return int(input["n"]) + 100


def _order(run_id: str, input: Input) -> Expected:
    result = {"paid": amount(input), **price(input)}
    return Expected("completed", result, frozenset({"one", "ask_vendor", "shipped"}))


def _journey(run_id: str, input: Input) -> Expected:
    called = (amount(input) + 1) * 10
    result = {
        "again": input["n"] + 2,
        "called": called,
        "spawned": f"{run_id}/spawn:child",
        "gathered": [1, None, 11, 40],
        "winner": 1,
        "caught": True,
        "end": called + 1,
    }
    names = ("a", "b", "g0", "g1", "f", "c", "end")
    return Expected("completed", result, frozenset(f"journey/{name}" for name in names))


def _lanes(run_id: str, input: Input) -> Expected:
    numbers = range(input["n"] % 5)
    gathered = [*(number + 2 for number in numbers), amount(input), 10, 20]
    result = {"gathered": gathered, "in_time": False, "tasks": [9, 10], "end": sum(gathered) + 1}
    names = {f"{name}{number}" for name in "ab" for number in (*numbers, 7, 8)} | {"end"}
    return Expected("completed", result, frozenset(f"lanes/{name}" for name in names))


def _child(run_id: str, input: Input) -> Expected:
    return Expected("completed", (input["n"] + 1) * 10, frozenset({"child_step", "child_end"}))


def _tick(run_id: str, input: Input) -> Expected:
    return Expected("completed", 1, frozenset({"one"}))


CASES = {
    case.workflow: case
    for case in (
        Case("plain", 4, _plain_input, _plain, ("pause", "cancel", "cancel_retry", "rewind")),
        Case("fan", 2, _n, _fan, ("pause", "cancel", "cancel_retry", "rewind")),
        Case("saga", 2, _n, _saga),
        Case("order", 2, _n, _order, ("pause", "cancel", "cancel_retry", "rewind", "settle"), awaits=True),
        Case("journey", 3, _n, _journey, ("pause", "cancel", "cancel_retry", "rewind"), awaits=True),
        Case("lanes", 3, _n, _lanes, ("pause", "cancel", "cancel_retry", "rewind"), awaits=True),
        # Started by flows, and by a schedule.
        Case("child", 0, _n, _child, ()),
        Case("tick", 0, _n, _tick, ()),
    )
}
#: What `rewind` goes back to.
REWIND_TO = {"plain": "flaky", "fan": "others", "order": "paid", "journey": "journey", "lanes": "lanes"}
#: How many children each flow has, by how they are started.
CHILDREN = {"journey": {"call": 2, "spawn": 1}, "lanes": {"call": 2}}
