"""What can go wrong with the embedded stack, as one exception whose text says what to do."""

from __future__ import annotations


class StackError(RuntimeError):
    """The embedded stack cannot be had; the message names the server and the way out."""
