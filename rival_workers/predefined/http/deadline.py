"""Enforces the deadline of a whole HTTP exchange."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class DeadlineExceeded(Exception):
    """The whole exchange took longer than its timeout."""


class Deadline:
    """Shuts connections down at a deadline. Read timeouts are not enough: a peer that sends one byte at a time keeps
    every single read short.
    """

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for watched in self._sockets:
            watched.close()

    @property
    def left(self) -> float:
        return max(0.001, self._at - time.monotonic())

    def check(self) -> None:
        """A connection that was shut down may look like a regular end of the response."""
        if time.monotonic() >= self._at:
            raise DeadlineExceeded

    def watch(self, connected: socket.socket) -> None:
        # A duplicate of the socket: TLS takes over the original.
        self._sockets.append(connected.dup())
        self.check()

    def _shut_down(self) -> None:
        for watched in self._sockets:
            with contextlib.suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)
