"""Which event fits which wait. Pure."""

from __future__ import annotations

from typing import Any

from rival_client.model.payload import same_scalar


def holds(payload: Any, wanted: Any) -> bool:
    """The payload has all that is wanted, and may have more: objects by their keys, lists by their members."""
    if isinstance(wanted, dict):
        return isinstance(payload, dict) and all(key in payload and holds(payload[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(payload, list) and all(any(holds(one, each) for one in payload) for each in wanted)
    return same_scalar(payload, wanted)
