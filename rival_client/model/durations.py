"""Writes lengths of time as people do: "1.5 s", "2 min 5 s", "3 h", "2 d 4 h"."""

from __future__ import annotations

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def duration_text(seconds: float) -> str:
    """Below two minutes in seconds, with three digits; above in whole units, at most two of them."""
    if abs(seconds) < 120:
        return f"{seconds:.3g} s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for name, length in _UNITS:
        count, left = divmod(left, length)
        if count or parts:
            parts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)
