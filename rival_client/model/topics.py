"""The topic of a typed event: the same for senders and for the steps that wait."""

from __future__ import annotations

import re

from pydantic import BaseModel


def topic_of(model: type[BaseModel]) -> str:
    """A typed event's topic: its class attribute `topic`, or its name in kebab case."""
    given = getattr(model, "topic", None)
    return given if isinstance(given, str) else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", model.__name__).lower()
