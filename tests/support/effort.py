"""How much the randomised tests try. `make test` tries little, each time the same or something else; RIVAL_EFFORT=20
tries twenty times as much.
"""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("RIVAL_EFFORT", "1"))


def examples(usual: int) -> int:
    return max(1, round(usual * EFFORT))
