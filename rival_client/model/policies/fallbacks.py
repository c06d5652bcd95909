"""The fallback of a step, as data: a value, one more attempt with other values, or a function."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Shape = Literal["value", "retry_with", "function"]


class Fallback(BaseModel):
    """The option `fallback` of a step. Its function, if it has one, is the step `charge!fallback`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shape: Shape
    #: The result of the step.
    value: Any = None
    #: `ctx.overrides` of one more attempt.
    overrides: dict[str, Any] = {}


def fell_back(shape: Shape, error: dict[str, Any] | None, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """The value of the column `fallback`: it ensures that a step falls back once, and shows why."""
    why = {name: (error or {}).get(name) for name in ("type", "message", "attempt")}
    changed = {} if overrides is None else {"overrides": overrides}
    return {"shape": shape, **changed, "error": {name: value for name, value in why.items() if value is not None}}
