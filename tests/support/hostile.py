"""Hostile values for arguments, and calls of every public method with them; the methods are found by introspection."""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import os
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import psycopg
from pydantic import BaseModel, model_serializer
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from rival_client import RunFilter
from rival_client.model.completion_token import CompletionToken
from rival_client.model.starts.run_options import RunOptions

#: How many calls of all that there are; RIVAL_FUZZ=all makes every one.
CALLS = os.environ.get("RIVAL_FUZZ", "1500")
#: Seconds for one test.
TIMEOUT = 120 if CALLS == "1500" else 3600
SEED = int(os.environ.get("RIVAL_FUZZ_SEED", "1"))


class Lying(str):
    """Says something else whenever it is asked."""

    def __str__(self) -> str:
        return "lies\x00"

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def strip(self, *_: Any) -> str:
        raise RuntimeError("no strip")


class Unfit(BaseModel):
    """A model that cannot become JSON."""

    @model_serializer
    def broken(self) -> Any:
        raise RuntimeError("no JSON")


class Evil:
    """Raises whatever is asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no eq")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __bool__(self) -> bool:
        raise RuntimeError("no bool")


class Colour(enum.Enum):
    RED = "red"


def _itself_in_a_dict() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


def _itself_in_a_list() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def _closed_session() -> Session:
    session = Session(create_engine("sqlite://"))
    session.close()
    return session


def _closed_sqlite() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.close()
    return connection


_EAST = dt.timezone(dt.timedelta(hours=14))
_WEST = dt.timezone(-dt.timedelta(hours=14))

#: Made for each call: some can be used once.
HOSTILE: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "empty text": lambda: "",
    "blank": lambda: " \n\t",
    "nul": lambda: "\x00",
    "text with nul": lambda: "order\x00-42",
    "surrogate": lambda: "a\ud800b",
    "201 signs": lambda: "x" * 201,
    "8000 signs": lambda: "x" * 8000,
    "200 wide signs": lambda: "\U0001f600" * 200,
    "10 MB": lambda: "x" * 10_000_000,
    "slashes": lambda: "../../etc/passwd",
    "no item": lambda: "[]",
    "item of text": lambda: "a[x]",
    "far item": lambda: f"a[{'9' * 900}]",
    "like a child": lambda: "done/call:w~2",
    "sql": lambda: "'; DROP TABLE x; --",
    "formats": lambda: "%s %(id)s :id {0} $1",
    "controls": lambda: "\x1b[2J\r\n\x7f",
    "text": lambda: "nothing like it",
    "lying text": lambda: Lying("done"),
    "bytes": lambda: b"done",
    "bytearray": lambda: bytearray(b"done"),
    "true": lambda: True,
    "false": lambda: False,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "seven": lambda: 7,
    "2**31": lambda: 2**31,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "float": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1e300": lambda: 1e300,
    "tiny": lambda: 5e-324,
    "decimal": lambda: Decimal("1.5"),
    "decimal nan": lambda: Decimal("nan"),
    "fraction": lambda: Fraction(10**400, 3),
    "complex": lambda: 1j,
    "longest span": lambda: dt.timedelta.max,
    "negative span": lambda: dt.timedelta(days=-1),
    "naive time": lambda: dt.datetime(2026, 1, 1),
    "year 1": lambda: dt.datetime(1, 1, 1, tzinfo=_EAST),
    "year 9999": lambda: dt.datetime(9999, 12, 31, 23, 59, tzinfo=_WEST),
    "date": lambda: dt.date(2026, 1, 1),
    "empty list": list,
    "list": lambda: ["done", "nothing like it"],
    "list of none": lambda: [None],
    "list with nul": lambda: ["a", "b\x00c"],
    "one bad of three": lambda: ["done", 7, "failed"],
    "set": lambda: {1, 2},
    "70000 texts": lambda: [str(n) for n in range(70_000)],
    "generator": lambda: (n for n in range(3)),
    "empty dict": dict,
    "dict": lambda: {"x": 1},
    "dict with nan": lambda: {"x": float("nan")},
    "numbers as keys": lambda: {1: 2, None: 3},
    "tuples as keys": lambda: {("a",): 1},
    "nul in dict": lambda: {"a\x00": "b\x00"},
    "surrogate in dict": lambda: {"a": "\udfff"},
    "many lists": lambda: {str(n): [n] for n in range(5000)},
    "times in dict": lambda: {"at": dt.datetime(2026, 1, 1), "how": [Decimal(1)]},
    "holds itself": _itself_in_a_dict,
    "list that holds itself": _itself_in_a_list,
    "190 levels": lambda: {"x": _nested(190)},
    "900 levels": lambda: _nested(900),
    "100000 levels": lambda: _nested(100_000),
    "object": object,
    "evil": Evil,
    "class": lambda: dict,
    "function": lambda: len,
    "enum": lambda: Colour.RED,
    "uuid": lambda: uuid.UUID(int=7),
    "unfit model": Unfit,
    "exception": lambda: ValueError("a\x00b\ud800"),
    "odd filter": lambda: RunFilter(status="odd"),
    "filter of wrong kinds": lambda: RunFilter(workflow=7, input=[1], since="now"),  # type: ignore[arg-type]
    "damaged cursor": lambda: "WyIyMDI2LTAxLTAxVDAwOjAwOjAwIiw3XQ",
    "cursor of null": lambda: "bnVsbA",
    "odd token": lambda: str(CompletionToken("done", "a", 2**70)),
    "half a token": lambda: str(CompletionToken("d", "a", 1))[:-3],
    "token of nul": lambda: CompletionToken("do\x00ne", "a", 1),
    "closed session": _closed_session,
    "closed sqlite": _closed_sqlite,
    "psycopg class": lambda: psycopg.Connection,
}


@dataclass(frozen=True)
class Call:
    """One method, one hostile value for one of its parameters, and what is usual for the others."""

    surface: str
    method: str
    parameter: str
    kind: str
    #: Whether the usual values of optional parameters are given, too.
    full: bool

    def __str__(self) -> str:
        return f"{self.surface}.{self.method}({self.parameter}=<{self.kind}>{', …' if self.full else ''})"

    def arguments(self, usual: Mapping[str, Any], always: Mapping[str, Any], method: Any) -> dict[str, Any]:
        given = {
            name: {**usual, **always}[name]
            for name, parameter in parameters(method).items()
            if parameter.default is inspect.Parameter.empty or name in always or (self.full and name in usual)
        }
        return {**given, self.parameter: HOSTILE[self.kind]()}


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """With the options of a start one by one, where a method takes them as keywords."""
    found = {name: one for name, one in inspect.signature(function).parameters.items() if name != "self"}
    if found and (last := list(found.values())[-1]).kind is inspect.Parameter.VAR_KEYWORD:
        del found[last.name]
        kind = inspect.Parameter.KEYWORD_ONLY
        found |= {name: inspect.Parameter(name, kind, default=None) for name in RunOptions.__annotations__}
    return found


def public_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, member


#: The publishers are for our own modules.
LEFT_OUT = frozenset({"close", "publisher", "event_publisher", "gather_publisher"})


def calls_of(surfaces: Mapping[str, type]) -> list[Call]:
    """Every public method of the classes with every hostile value for every parameter."""
    return [
        Call(surface, method, parameter, kind, full)
        for surface, cls in surfaces.items()
        for method, function in public_methods(cls)
        if method not in LEFT_OUT
        for parameter in parameters(function)
        for kind in HOSTILE
        # What a callback raises is the caller's own.
        if parameter != "on_outcome" or not callable(HOSTILE[kind]())
        for full in (False, True)
    ]


def some_of(calls: list[Any], share: float = 1.0) -> list[Any]:
    if CALLS == "all":
        return calls
    count = min(len(calls), max(1, round(int(CALLS) * share)))
    return random.Random(SEED).sample(calls, count)
