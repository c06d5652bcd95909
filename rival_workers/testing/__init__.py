"""Test workflows in milliseconds: the real engine in the test's own process, on a virtual clock, without services.

Each name is imported when it is first used, so that the pytest plugin costs nothing in a test suite without labs.
"""

from typing import TYPE_CHECKING

from rival_client.late_names import late_names

if TYPE_CHECKING:
    from rival_workers.testing.errors import LabError, NeverEnds
    from rival_workers.testing.lab import Lab
    from rival_workers.testing.report import TimelineEntry
    from rival_workers.testing.run import LabRun

__all__ = ["Lab", "LabError", "LabRun", "NeverEnds", "TimelineEntry"]

if not TYPE_CHECKING:
    # A type checker would accept any name.
    __getattr__ = late_names(
        __name__,
        {
            "rival_workers.testing.errors": ["LabError", "NeverEnds"],
            "rival_workers.testing.lab": ["Lab"],
            "rival_workers.testing.report": ["TimelineEntry"],
            "rival_workers.testing.run": ["LabRun"],
        },
    )
