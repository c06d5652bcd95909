"""For how long a step is parked whose workflow this worker does not have: shortly at first, since another worker
probably has it, and longer each time.
"""

from __future__ import annotations

import random
from collections import OrderedDict

#: Seconds of the first time, and the most.
FIRST, LONGEST = 2.0, 15.0
#: The number of steps that are remembered.
MOST = 1000


class ParkDelays:
    def __init__(self) -> None:
        self._longest: OrderedDict[tuple[str, str | None], float] = OrderedDict()

    def next(self, run_id: str, path: str | None) -> float:
        """The seconds for one more time. Random, since workers that wait in step with each other would take the
        message in the same order each time."""
        key = (run_id, path)
        longest = min(LONGEST, self._longest.pop(key, FIRST / 2) * 2)
        self._longest[key] = longest
        if len(self._longest) > MOST:
            self._longest.popitem(last=False)
        return random.uniform(longest / 2, longest)
