"""Test workflows in milliseconds: the real engine in the test's own process, on a clock that skips. No services."""

from rival_workers.testing.errors import LabError, NeverEnds
from rival_workers.testing.lab import Lab
from rival_workers.testing.report import TimelineEntry
from rival_workers.testing.run import LabRun

__all__ = ["Lab", "LabError", "LabRun", "NeverEnds", "TimelineEntry"]
