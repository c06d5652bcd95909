"""Checks of the arguments that callers give: each returns the value in its plain form, or raises InvalidArgument.

Both clients, the commands, the flows' context and the definitions use these, so that an argument means the same
everywhere. Whether a value fits the run or the workflow is not checked here.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rival_client.errors import InvalidArgument, InvalidPayload
from rival_client.model.payload import dump, load

#: Ids, names, topics and keys are parts of indexes: Postgres takes no more than 2,700 bytes for an entry.
MAX_NAME = 200
#: What is looked for may be longer than what is made: a child run has its parent's id within its own.
MAX_LOOKED_FOR = 1000
MAX_TEXT = 4000
#: A hundred years, in seconds. A time that far ahead can be stored and read on every store.
MAX_SECONDS = 100 * 365 * 86_400.0
#: Bytes of the fields that a filter asks for.
MAX_FILTER = 64 * 1024
MAX_LIMIT = 1_000_000
#: What a database takes as an integer, and as a large one.
MAX_INT, MAX_BIGINT = 2**31 - 1, 2**63 - 1
_MOST_SHOWN = 60

T = TypeVar("T")


def shown(value: object) -> str:
    """A short form for an error: of containers and objects only the type, since they may hold secrets."""
    if value is None or isinstance(value, str | bytes | numbers.Number | dt.date | dt.timedelta):
        try:
            text = repr(value[: _MOST_SHOWN + 1] if isinstance(value, str | bytes) else value)
        except Exception:  # an int of many digits, or a subclass with a repr of its own
            return f"a value of type {type(value).__name__}"
        return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
    return f"a value of type {type(value).__name__}"


def invalid(argument: str, value: object, expected: str) -> InvalidArgument:
    return InvalidArgument(argument, f"{shown(value)} is not {expected}.")


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
    """A workflow or a flow itself, where its code is at hand."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> Any: ...


def workflow(value: object) -> str:
    """The name of a workflow, given as text or as the workflow itself."""
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


def whole(argument: str, value: object, least: int = 0, most: int = MAX_INT) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        raise invalid(argument, value, f"a whole number from {least:,} to {most:,}")
    return int(value)


def entry(value: object, argument: str = "if_entry") -> int | None:
    """The id of an entry of a history, or None."""
    return None if value is None else whole(argument, value, most=MAX_BIGINT)


def limit(value: object, argument: str = "limit") -> int:
    return whole(argument, value, 1, MAX_LIMIT)


def flag(argument: str, value: object) -> bool:
    """True or False only: any other text is true, also "no"."""
    if not isinstance(value, bool):
        raise invalid(argument, value, "a flag: give True or False")
    return value


def seconds(argument: str, value: object, *, least: float = 0.0, most: float = MAX_SECONDS) -> float:
    """A duration: a number of seconds, or a timedelta."""
    length = _length(value)
    if length is None or not least <= length <= most:
        allowed = f"at most {most:,.0f}" if least < 0 else f"{least:,g} to {most:,.0f}"
        raise invalid(argument, value, f"a duration: give {allowed} seconds, or a timedelta")
    return length


def rate(argument: str, value: object, what: str) -> float:
    """How many `what` per second."""
    number = None if isinstance(value, dt.timedelta) else _length(value)
    if number is None or not 0.001 <= number <= MAX_SECONDS:
        raise invalid(argument, value, f"a rate: give a number of {what} per second, of 0.001 or more")
    return number


def _length(value: object) -> float | None:
    """In seconds; None if it is not a duration. NaN is in no range."""
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def timeout(value: object, argument: str = "timeout") -> float | None:
    """How long to wait at most. None and infinity: for ever. What is over already: not at all."""
    length = math.inf if value is None else _length(value)
    if length is None or math.isnan(length):
        raise invalid(argument, value, "a timeout: give seconds, a timedelta, or None to wait for ever")
    return None if length > MAX_SECONDS else max(0.0, length)


def poll_interval(value: object) -> float:
    length = _length(value)
    if length is None or not 0 < length <= 86_400:
        raise invalid("poll_interval", value, "an interval: give more than 0 and at most 86,400 seconds")
    return length


def moment(argument: str, value: object) -> dt.datetime:
    """A point in time, in UTC. Without a time zone it would be another one on another machine."""
    if not isinstance(value, dt.datetime):
        raise invalid(argument, value, "a point in time: give a datetime with a time zone")
    try:
        if value.utcoffset() is None:
            raise invalid(argument, value, "a point in time: it has no time zone; give datetime(…, tzinfo=UTC)")
        return value.astimezone(dt.UTC)
    except (OverflowError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise invalid(argument, value, "a point in time in UTC: its year must be from 1 to 9999") from None


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
