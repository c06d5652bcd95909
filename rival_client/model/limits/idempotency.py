"""Idempotency keys of steps, as data: how the key of a step is written, checked and made. Pure.

Steps with the same key run once: the first one owns the key, and the others use its result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from rival_client.model.limits.key_paths import problem_of_key, value_at
from rival_client.model.payload import serialise

MAX_KEY = 1000
#: Seconds for which a result is kept, unless `idempotency_ttl` says otherwise.
DAY = 86_400.0
_PLACE = re.compile(r"\{([^{}]*)\}")


class IdempotencyKey(BaseModel):
    """The option `idempotency_key` of a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: `charge:{input.order}`. None: a function of the definition makes it, which is found at `charge!key`.
    template: str | None = None

    def filled(self, values: Mapping[str, Any]) -> str:
        """ValueError: a place has no value. Without it, runs that have nothing in common would share a key."""
        assert self.template is not None, "the function makes the key"
        return _PLACE.sub(lambda found: _value(found[1], values), self.template)


def _value(place: str, values: Mapping[str, Any]) -> str:
    found = value_at(place, values)
    if not found:
        raise ValueError(f"the idempotency key needs {place}, which has no value")
    return found


def as_key(given: Any, problems: list[str]) -> IdempotencyKey | None:
    """The option as data: a template, or a function."""
    if given is None or isinstance(given, IdempotencyKey):
        return given
    if isinstance(given, Mapping):
        given = given.get("template")
        if given is None:
            return IdempotencyKey()
    if isinstance(given, str):
        problems += [f"option idempotency_key: {why}" for why in _problems_of(given)]
        return IdempotencyKey(template=given)
    if callable(given):
        return IdempotencyKey()
    problems.append(
        f'option idempotency_key: give a text such as "charge:{{input.order}}" or a function, not {given!r}'
    )
    return None


def _problems_of(template: str) -> list[str]:
    if not template or len(template) > MAX_KEY or "\x00" in template:
        return [f"give 1 to {MAX_KEY} characters"]
    places = _PLACE.findall(template)
    found = [why for place in places if (why := problem_of_key(place)) is not None]
    if set(_PLACE.sub("", template)) & set("{}"):
        found.append(f"{template!r} has a brace that does not belong to a place such as {{input.order}}")
    elif not places:
        found.append(f"{template!r} is the same for all runs: name a value, as in '{template}:{{input.order}}'")
    return found


def checked_key(value: object, option: str = "idempotency_key") -> str:
    """Checks the key that the function of an option has returned."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value or len(value) > MAX_KEY or "\x00" in value:
        raise ValueError(
            f"the function of {option} must return a text of 1 to {MAX_KEY} characters, a whole number, or None "
            f"for a step without a key, not {_shown(value)}"
        )
    return value


def _shown(value: object) -> str:
    try:
        return f"{value!r:.200}"
    except Exception:
        return f"an object of type {type(value).__name__}"


def fingerprint(*values: Any) -> str:
    """The same for equal inputs, whatever the order of their keys."""
    return hashlib.sha256(serialise(_sorted(list(values))).encode()).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value
