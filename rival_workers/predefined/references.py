"""What `{steps.find_tree.result[tree_id]}` refers to: a name, and ways into it by attribute, key or index."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import types
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rival_workers.errors import StepError
from rival_workers.runtime.attempt.context import Steps

_TEXTS = (str, int, float, decimal.Decimal, uuid.UUID)
_NOT_DATA = (type, types.ModuleType)


class _Nowhere(Exception):
    """There is no such way."""


@dataclass(frozen=True)
class Reference:
    root: str
    #: (name, in brackets?)
    ways: tuple[tuple[str, bool], ...]
    #: As it was written.
    text: str

    def resolve(self, ctx: Any) -> Any:
        value, so_far = getattr(ctx, self.root), self.root
        for name, bracketed in self.ways:
            try:
                value = _item(value, name) if bracketed else _attribute(value, name)
            except _Nowhere as error:
                raise StepError(f"template {{{self.text}}}: {so_far} {error}") from None
            so_far += f"[{name}]" if bracketed else f".{name}"
        return value


def _attribute(value: Any, name: str) -> Any:
    """`.name` is a key of a dict, a step of `steps`, or an attribute that is data."""
    if isinstance(value, Mapping | Steps):
        return _key(value, name)
    try:
        found = getattr(value, name)
    except AttributeError:
        raise _Nowhere(f"({_kind(value)}) has no {name!r}") from None
    if callable(found) or isinstance(found, _NOT_DATA):
        raise _Nowhere(f"has {name!r}, but that is no data: templates call nothing")
    return found


def _item(value: Any, name: str) -> Any:
    if isinstance(value, Mapping | Steps):
        return _key(value, name)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _Nowhere(f"is {_kind(value)}: there is no [{name}] in it")
    try:
        return value[int(name)]
    except ValueError:
        raise _Nowhere(f"is a list: [{name}] is no index") from None
    except IndexError:
        raise _Nowhere(f"has {len(value)} items: there is no [{name}]") from None


def _key(value: Any, name: str) -> Any:
    if name in value:
        return value[name]
    if isinstance(value, Steps):
        # It says which steps there are; a whole path may be right though it is no name.
        return value[name]
    raise _Nowhere(f"has no {name!r}; it has {', '.join(map(str, list(value)[:20])) or 'nothing'}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def as_text(reference: Reference, value: Any) -> str:
    """What can stand in the middle of a text without a doubt about how it is written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, _TEXTS):
        return str(value)
    raise StepError(
        f"template {{{reference.text}}} is {_kind(value)}: only text, numbers and dates can stand in a text. "
        "Make sure it is there, or give a function."
    )
