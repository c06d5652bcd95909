"""Loads the named statements of the `.sql` files, and describes a fast path: one statement instead of a store method.

A statement begins with `-- name:` and ends where the next one begins. `-- shortcuts:` names the store method that it
replaces. Parameters are written as psql variables (`:'run_id'`), so that a statement can be pasted into psql. Text that
several statements of a file share is a part (`-- part:`), which they contain as `:{name}`; `:{key as fair}` is the part
`key` with `fair_source` instead of `key_source`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from importlib.resources import files
from typing import Final, Generic, Literal, TypeVar

from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import Row, Statement, Value
from rival_client.model.starts.queues import ServedQueues

Call = TypeVar("Call")
Result = TypeVar("Result")

_NAME = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_PART = re.compile(r":\{(\w+)(?: as (\w+))?\}")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r":'(\w+)'")


def load_statements(file: str) -> dict[str, Statement]:
    """The statements of a file of this folder, by name."""
    _, *found = _NAME.split(files(__package__).joinpath(file).read_text("utf-8"))
    texts = list(zip(found[::3], found[1::3], (_COMMENT.sub("", text).strip() for text in found[2::3]), strict=True))
    parts = {name: text for kind, name, text in texts if kind == "part"}
    return {name: _statement(name, text, parts) for kind, name, text in texts if kind == "name"}


def _statement(name: str, text: str, parts: Mapping[str, str]) -> Statement:
    while _PART.search(text):
        text = _PART.sub(lambda found: _named(parts[found[1]], found[1], found[2]), text)
    return Statement.of(name, _PARAMETER.sub(r"%(\1)s", text.removesuffix(";")))


def _named(part: str, name: str, other: str | None) -> str:
    return part if other is None else part.replace(f"{name}_", f"{other}_")


def array_of(names: Iterable[str]) -> str:
    """A Postgres array literal. Names are quoted as in JSON."""
    return "{" + ",".join('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names) + "}"


@dataclass(frozen=True)
class FastPath(Generic[Call, Result]):
    """One statement that does what a method of `SqlStore` does, for the calls and rows that it matches."""

    #: The store method.
    shortcuts: str
    statement: Statement
    #: Checks the arguments. Conditions on rows are in the guard of the statement.
    applies: Callable[[Call], bool]
    #: Why the statement is equivalent for these calls.
    because: str
    values: Callable[[Call], dict[str, Value]]
    #: Returns None if the statement matched only in part and changed nothing that the portable path would not find.
    result: Callable[[Call, Row], Result | None]
    #: Executed before the statement, in the same transaction and round trip.
    lock: Statement | None = None
    #: True if no row means a stale call, so that the portable path is not tried.
    decides: bool = False

    def fetch(self, prepared: PreparedPool, call: Call) -> Row | None:
        if self.lock is None:
            return prepared.fetch(self.statement, self.values(call))
        return prepared.fetch_in_turn(self.lock, self.statement, self.values(call))


class _Path(Enum):
    PORTABLE = auto()


PORTABLE: Final = _Path.PORTABLE
Portable = Literal[_Path.PORTABLE]


class FastPaths:
    """The base of the parts of `PostgresStore`: each tries the fast paths of an operation, then its portable part."""

    _prepared: PreparedPool
    ring_grace: float
    served: ServedQueues
    #: The names of the served queues, as a Postgres array.
    _queues: str

    def _in_place(self, claim_for: str | None) -> str | None:
        """None if this worker does not serve the fleet's own queue: the fast statements open steps of that
        queue only."""
        return claim_for if None in self.served else None

    def _fast(self, call: Call, *paths: FastPath[Call, Result]) -> Result | Portable | None:
        """The result of the first path that applies. PORTABLE: none applies, or the guard of the statement did not
        match."""
        for path in paths:
            if path.applies(call):
                row = path.fetch(self._prepared, call)
                result = None if row is None else path.result(call, row)
                return _Path.PORTABLE if result is None and not path.decides else result
        return _Path.PORTABLE
