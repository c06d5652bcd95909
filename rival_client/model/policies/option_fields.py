"""Properties of each option of a step: whether it is a duration, and which kinds of steps can have it."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.fields import FieldInfo

from rival_client.model.policies.step_config import StepConfig, Target

#: The fields of a policy.
FIELDS: dict[str, FieldInfo] = dict(StepConfig.model_fields)


def _about(name: str) -> dict[str, Any]:
    about = FIELDS[name].json_schema_extra
    assert isinstance(about, dict), f"declare {name} with option(…)"
    return about


#: Fields that are seconds.
DURATIONS: tuple[str, ...] = tuple(name for name in FIELDS if _about(name)["duration"])


@cache
def fields_of(target: Target) -> frozenset[str]:
    """The fields that a target can have."""
    return frozenset(name for name in FIELDS if target in _about(name)["targets"])


def can_have(target: Target, name: str, value: Any) -> bool:
    """Whether a target can have this value of a field, as JSON. Only a step can be external, and no rule changes that.
    A step of a flow falls back to a value; the flow handles other failures."""
    if target == "flow_step" and name == "fallback":
        return value is None or value["shape"] == "value"
    if target == "flow_step" and name == "on_failure":
        return value not in ("compensate", "dead_letter")
    if name != "execution_mode" or target == "step":
        return name in fields_of(target)
    is_external = bool(value == "external")
    return is_external == (target == "external")
