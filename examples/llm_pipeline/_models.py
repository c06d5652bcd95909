"""Stand-ins for two language models. A real one would be a call over the network, with a timeout of its own."""

from __future__ import annotations


class Overloaded(Exception):
    """What an API says with 429 or 503."""


def big_model(prompt: str, attempt: int) -> str:
    """Overloaded at the first try; with "outage" in the prompt, at every one."""
    if "outage" in prompt or attempt < 2:
        raise Overloaded("too many requests")
    return f"[big] {prompt[:40]}"


def small_model(prompt: str) -> str:
    return f"[small] {prompt[:40]}"
