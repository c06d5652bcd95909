"""Checks of the arguments that callers give: each returns the value in its plain form, or raises InvalidArgument.
Those that are numbers and times are in `amounts`.

Both clients, the commands, the flows' context and the definitions use these, so that an argument means the same
everywhere. Whether a value fits the run or the workflow is not checked here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rival_client.errors import InvalidArgument, InvalidPayload
from rival_client.model.checks.amounts import MAX_BIGINT
from rival_client.model.checks.argument_errors import MAX_TEXT, invalid, shown
from rival_client.model.payload import dump, load

#: Ids, names, topics and keys are parts of indexes: Postgres takes no more than 2,700 bytes for an entry.
MAX_NAME = 200
#: Ids to look up may be longer than new ids: the id of a child run contains the id of its parent.
MAX_LOOKED_FOR = 1000
#: Bytes of the fields that a filter asks for.
MAX_FILTER = 64 * 1024

T = TypeVar("T")


# -- text -------------------------------------------------------------------------------------------------


def text(argument: str, value: object, most: int = MAX_TEXT, *, may_be_blank: bool = False) -> str:
    """Text that every store keeps as it is: no NUL, which C strings end at, and no lone surrogate."""
    if not isinstance(value, str):
        raise invalid(argument, value, f"text: give a string of 1 to {most:,} characters")
    # Not a subclass, which may say something else when it is formatted.
    plain = str.__str__(value)
    if not may_be_blank and not plain.strip():
        raise invalid(argument, value, f"a usable text: give 1 to {most:,} characters, not only white space")
    if len(plain) > most:
        raise InvalidArgument(argument, f"{shown(value)} has {len(plain):,} characters; give at most {most:,}.")
    if "\x00" in plain:
        raise InvalidArgument(argument, f"{shown(value)} holds a NUL character; leave it out.")
    if not is_unicode(plain):
        raise InvalidArgument(argument, f"{shown(value)} holds a lone surrogate, which is not Unicode; leave it out.")
    return plain


def is_unicode(plain: str) -> bool:
    try:
        plain.encode()
    except UnicodeEncodeError:
        return False
    return True


def new_id(argument: str, value: object) -> str:
    """The id of what is to be made: a run, an event."""
    return text(argument, value, MAX_NAME)


def id_looked_for(argument: str, value: object) -> str:
    return text(argument, value, MAX_LOOKED_FOR)


def run_id(value: object, argument: str = "run_id") -> str:
    """The id of a run that is looked for."""
    return id_looked_for(argument, value)


def name(argument: str, value: object) -> str:
    """Of a workflow, a topic, a schedule, an operator."""
    return text(argument, value, MAX_NAME)


class HasName(Protocol):
    """A workflow or a flow, given as an object instead of by its name."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> Any: ...


def workflow(value: object) -> str:
    """The name of a workflow, given as text or as the workflow itself."""
    if not isinstance(value, str) and hasattr(value, "register"):
        raise InvalidArgument(
            "workflow", f"this {type(value).__name__} is not registered: give what its register() returns."
        )
    is_itself = not isinstance(value, str) and hasattr(value, "name") and hasattr(value, "version")
    return name("workflow", getattr(value, "name", value) if is_itself else value)


def step(value: object, argument: str = "step") -> str:
    """A step's name or path."""
    return text(argument, value, MAX_LOOKED_FOR)


def key(value: object, argument: str = "key", what: str = "a key") -> str:
    """An event's key. Ids that are not text are taken as they are written."""
    # An int of thousands of digits cannot be written.
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_BIGINT
    if is_number or isinstance(value, uuid.UUID):
        value = str(value)
    if not isinstance(value, str):
        raise invalid(argument, value, f"{what}: give a string of 1 to {MAX_NAME} characters, an int or a UUID")
    return text(argument, value, MAX_NAME)


def choice(argument: str, value: object, options: Collection[str]) -> Any:
    if not isinstance(value, str) or value not in options:
        raise invalid(argument, value, f"one of {', '.join(map(repr, options))}")
    return str.__str__(value)


# -- numbers and times ------------------------------------------------------------------------------------


def flag(argument: str, value: object) -> bool:
    """True or False only: any other text is true, also "no"."""
    if not isinstance(value, bool):
        raise invalid(argument, value, "a flag: give True or False")
    return value


# -- several ----------------------------------------------------------------------------------------------


def optional(check: Callable[[str, object], T], argument: str, value: object) -> T | None:
    return None if value is None else check(argument, value)


def several(argument: str, value: object) -> list[Any]:
    """A list, or anything else to go through. A string or a mapping is one value, not several."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise invalid(argument, value, "a list")
    return list(value)


def ids(argument: str, value: object, check: Callable[[str, object], str] = new_id) -> list[str]:
    """Each checked, and named by its place."""
    return [check(f"{argument}[{index}]", one) for index, one in enumerate(several(argument, value))]


def fields(argument: str, value: object) -> dict[str, Any]:
    """JSON fields that a filter asks for."""
    if not isinstance(value, Mapping):
        raise invalid(argument, value, 'a mapping of fields, as in {"customer": 7}')
    try:
        found: dict[str, Any] = load(dump(dict(value), what="it", limit=MAX_FILTER))
    except InvalidPayload as error:
        raise InvalidArgument(argument, str(error)) from error
    return found


def statuses(argument: str, value: object, options: Sequence[str]) -> tuple[str, ...]:
    """One of them, or several; each once."""
    wanted = [value] if isinstance(value, str) else several(argument, value)
    return tuple(dict.fromkeys(choice(argument, one, options) for one in wanted))


# -- objects ----------------------------------------------------------------------------------------------


def instance(argument: str, value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise invalid(argument, value, f"a {kind.__name__}")
    return value


def callback(argument: str, value: object) -> None:
    if value is not None and not callable(value):
        raise invalid(argument, value, "a function")


def urls(database_url: object, broker_url: object) -> None:
    """Of the servers. They are not shown: they may have a password."""
    for argument, value in (("database_url", database_url), ("broker_url", broker_url)):
        if value is None:
            continue
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise InvalidArgument(
                argument, f"a value of type {type(value).__name__} is not a URL: give a short string."
            )
