"""How a flow's attempt may end without an outcome. No Exceptions, so that a flow's own `except` lets them pass."""

from __future__ import annotations


class Suspend(BaseException):
    """The flow waits; that is committed already."""


class Moved(BaseException):
    """The flow has gone on without this attempt: timed out, cancelled, taken over."""
