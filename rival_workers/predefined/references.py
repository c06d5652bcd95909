"""References of templates, like `{steps.find_tree.result[tree_id]}`: a name, then attributes, keys and indexes."""

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


class _NotFound(Exception):
    """The value has no such attribute, key or index."""


@dataclass(frozen=True)
class Reference:
    root: str
    #: (name, in brackets?)
    accessors: tuple[tuple[str, bool], ...]
    #: The source text.
    text: str

    def resolve(self, ctx: Any) -> Any:
        value, so_far = getattr(ctx, self.root), self.root
        for name, bracketed in self.accessors:
            try:
                value = _item(value, name) if bracketed else _attribute(value, name)
            except _NotFound as error:
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
        raise _NotFound(f"({_kind(value)}) has no {name!r}") from None
    if callable(found) or isinstance(found, _NOT_DATA):
        raise _NotFound(f"has {name!r}, but that is not data: templates cannot call functions")
    return found


def _item(value: Any, name: str) -> Any:
    if isinstance(value, Mapping | Steps):
        return _key(value, name)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _NotFound(f"is {_kind(value)}: it has no [{name}]")
    try:
        return value[int(name)]
    except ValueError:
        raise _NotFound(f"is a list: [{name}] is not an index") from None
    except IndexError:
        raise _NotFound(f"has {len(value)} items: [{name}] does not exist") from None


def _key(value: Any, name: str) -> Any:
    if name in value:
        return value[name]
    if isinstance(value, Steps):
        # `Steps` also accepts whole paths, and its error lists the steps.
        return value[name]
    raise _NotFound(f"has no {name!r}; it has {', '.join(map(str, list(value)[:20])) or 'nothing'}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def as_text(reference: Reference, value: Any) -> str:
    """The text of a value with only one obvious text form; raises StepError for others."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, _TEXTS):
        return str(value)
    raise StepError(
        f"template {{{reference.text}}} is {_kind(value)}: only strings, numbers and dates can be part of a text. "
        "Make sure the value is present, or give a function."
    )
