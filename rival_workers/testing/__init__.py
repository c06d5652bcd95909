"""Test workflows in milliseconds: the real engine in the test's own process, on a virtual clock, without services.

Each name is imported when it is first used, so that the pytest plugin costs nothing in a test suite without labs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rival_workers.testing.errors import LabError, NeverEnds
    from rival_workers.testing.lab import Lab
    from rival_workers.testing.report import TimelineEntry
    from rival_workers.testing.run import LabRun

__all__ = ["Lab", "LabError", "LabRun", "NeverEnds", "TimelineEntry"]

_MODULES = {"Lab": "lab", "LabError": "errors", "LabRun": "run", "NeverEnds": "errors", "TimelineEntry": "report"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
