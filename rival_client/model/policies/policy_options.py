"""Checks the options of a step or of a policy rule, as users write them, and turns them into JSON.

Definitions, `run(policies=…)` and the rules of the fleet use the same checks. All problems are reported at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from rival_client.errors import InvalidPayload
from rival_client.model.checks.amounts import MAX_SECONDS
from rival_client.model.checks.argument_errors import shown
from rival_client.model.limits.given_limits import read_limits
from rival_client.model.limits.idempotency import as_key
from rival_client.model.limits.limit_options import LIMITS
from rival_client.model.payload import dump, load
from rival_client.model.policies.breakers import Breaker
from rival_client.model.policies.error_names import as_names
from rival_client.model.policies.fallback_option import as_fallback
from rival_client.model.policies.option_fields import DURATIONS, FIELDS
from rival_client.model.policies.step_config import StepConfig

#: The options that a rule can have.
RULE_OPTIONS: tuple[str, ...] = tuple(FIELDS)


def checked_options(options: Mapping[str, Any], known: Collection[str], problems: list[str]) -> dict[str, Any]:
    """The fields of a policy that were given, as JSON. `known`: all names that these options can have."""
    problems += unknown_options(options, known)
    values = {key: seconds(value) if key in DURATIONS else value for key, value in options.items()}
    problems += [f"option {key}: {shown(options[key])} is longer than a hundred years" for key in _too_long(values)]
    values = {key: value for key, value in values.items() if key in FIELDS}
    values = _as_data(values, known, problems)
    try:
        return StepConfig(**values).model_dump(mode="json", include=set(values))
    except ValidationError as error:
        problems += [f"option {'.'.join(map(str, e['loc']))}: {_text(e['msg'])}" for e in error.errors()]
        return {}


def _text(message: str) -> str:
    """A validator's own text has this prefix."""
    return message.removeprefix("Value error, ")


def _as_data(values: dict[str, Any], known: Collection[str], problems: list[str]) -> dict[str, Any]:
    """Objects and classes that users write become data."""
    if "fallback" in values and "fallback" in known:
        values["fallback"] = as_fallback(values["fallback"], problems)
    if "idempotency_key" in values and "idempotency_key" in known:
        values["idempotency_key"] = as_key(values["idempotency_key"], problems)
    values |= {key: read_limits(key, values[key], problems) for key in LIMITS if key in values and key in known}
    if "circuit_breaker" in known and not isinstance(values.get("circuit_breaker"), Mapping | Breaker | None):
        name = values["circuit_breaker"] if isinstance(values["circuit_breaker"], str) else "openai"
        problems.append(f'option circuit_breaker: give breaker("{name}", failures=5, window=60)')
        values["circuit_breaker"] = None
    if "metadata" in values:
        values["metadata"] = _metadata(values["metadata"], problems)
    for key in ("retry_on", "no_retry_on"):
        if values.get(key) is not None:
            values[key] = as_names(key, values[key], problems)
    if values.get("max_retries") is not None and values.get("max_attempts") is not None:
        problems.append(
            "max_retries retries every exception, max_attempts caps what asks for a retry: give one of the two"
        )
    return values


def _metadata(given: Any, problems: list[str]) -> Any:
    try:
        return load(dump(given, what="the value"))
    except InvalidPayload as error:
        problems.append(f"option metadata: {error}")
        return {}


def unknown_options(options: Mapping[str, Any], known: Collection[str]) -> list[str]:
    return [_unknown(key, known) for key in options if key not in known]


def _unknown(key: str, known: Collection[str]) -> str:
    if key == "hooks":
        return "option hooks: give hooks to the workflow, or to some of its steps in a rule of its policies"
    return f"unknown option {shown(key)}{_did_you_mean(key, known)}; known are {', '.join(known)}"


def _too_long(values: Mapping[str, Any]) -> list[str]:
    """Databases cannot store the end of such a duration."""
    numbers = {key: values[key] for key in DURATIONS if isinstance(values.get(key), int | float)}
    return [key for key, value in numbers.items() if MAX_SECONDS < value < float("inf")]


def _did_you_mean(key: str, known: Collection[str]) -> str:
    close = get_close_matches(str(key), list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, dt.timedelta) else value
