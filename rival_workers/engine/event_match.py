"""Whether an event matches the `where` of a wait. Pure."""

from __future__ import annotations

from typing import Any

from rival_client.model.payload import same_scalar


def holds(payload: Any, wanted: Any) -> bool:
    """Whether the payload contains `wanted`: of objects all keys, of lists all members. It may contain more."""
    if isinstance(wanted, dict):
        return isinstance(payload, dict) and all(key in payload and holds(payload[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(payload, list) and all(any(holds(one, each) for one in payload) for each in wanted)
    return same_scalar(payload, wanted)
