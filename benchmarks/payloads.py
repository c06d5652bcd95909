"""What steps return when results are large: text that does not compress. Standard library only: peers use it, too."""

from __future__ import annotations

import random
import string

_SIGNS = string.ascii_letters + string.digits
_TEXT = "".join(random.Random(1).choices(_SIGNS, k=200_000))


def text(size: int) -> str:
    """So many characters."""
    return _TEXT[:size]
