"""What a typed event's topic is: the same for those who send it and for those who wait for it."""

from __future__ import annotations

import re

from pydantic import BaseModel


def topic_of(model: type[BaseModel]) -> str:
    """A typed event's topic: its class attribute `topic`, or its name in kebab case."""
    given = getattr(model, "topic", None)
    return given if isinstance(given, str) else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", model.__name__).lower()
