"""The error of the embedded stack. Its message says what to do."""

from __future__ import annotations


class StackError(RuntimeError):
    """The embedded stack is not available; the message names the server and what to do."""
