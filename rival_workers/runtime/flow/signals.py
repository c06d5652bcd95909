"""How a flow's attempt may end without an outcome. No Exceptions, so that a flow's own `except` lets them pass."""

from __future__ import annotations


class Suspend(BaseException):
    """The flow waits; that is committed already."""


class Again(Suspend):
    """The flow begins anew, under this token; whoever has carried it so far may go on with it."""

    def __init__(self, token: int) -> None:
        super().__init__(token)
        self.token = token


class Moved(BaseException):
    """The flow has gone on without this attempt: timed out, cancelled, taken over."""


class OutOfReach(Moved):
    """The database was away for longer than the attempt could wait: what it has done last may have landed or not."""


class Killed(BaseException):
    """Stands for the end of the process at this point, in tests: nothing is committed or released after it."""
