"""A page that fills the terminal, is read again at an interval, and scrolls."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rival_client.errors import DatabaseUnavailable

_MOVES = {"\x1b[A": -1, "\x1bOA": -1, "k": -1, "\x1b[B": 1, "\x1bOB": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_KEY = re.compile(r"\x1b[\[O][\d;]*[A-Za-z~]|.", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """`header` stays where it is, `body` scrolls."""

    title: str
    header: Sequence[Text]
    body: Sequence[RenderableType]


class FullScreen:
    """Redraws at each interval and key. While the database is unreachable it keeps what it has, and says so."""

    def __init__(self, out: Console, interval: float, read: Callable[[], Page]) -> None:
        self._out, self._interval, self._read = out, interval, read
        self._page = read()
        self._problem, self._is_paused, self._offset = "", False, 0

    def run(self) -> None:
        """Until `q`."""
        due = time.monotonic() + self._interval
        with _keys_at_once(), Live(console=self._out, screen=True, auto_refresh=False) as live:
            while True:
                live.update(self._frame(), refresh=True)
                keys = _keys(max(0.0, due - time.monotonic()))
                if "q" in keys:
                    return
                for key in keys:
                    self._apply(key)
                if time.monotonic() >= due:
                    due = time.monotonic() + self._interval
                    self._read_again()

    def _apply(self, key: str) -> None:
        if key == "p":
            self._is_paused = not self._is_paused
        self._offset = max(0, self._offset + _MOVES.get(key, 0))

    def _read_again(self) -> None:
        if self._is_paused:
            return
        try:
            self._page, self._problem = self._read(), ""
        except DatabaseUnavailable:
            self._problem = "the database is unreachable"

    def _frame(self) -> RenderableType:
        """As high as the terminal: the title, the header, a part of the body, the keys."""
        body = self._out.render_lines(Group(*self._page.body), self._out.options, pad=False)
        room = max(1, self._out.height - len(self._page.header) - 2)
        self._offset = min(self._offset, max(0, len(body) - room))
        shown = body[self._offset : self._offset + room]
        filled = [*shown, *([[]] * (room - len(shown)))]
        lines = [Text.assemble(*((one.text, one.style or "") for one in line if not one.control)) for line in filled]
        frame = [self._title(), *self._page.header, *lines, self._help(len(body) - self._offset - room)]
        for line in frame:
            line.no_wrap, line.overflow = True, "crop"
        return Group(*frame)

    def _title(self) -> Text:
        state = self._problem or ("paused" if self._is_paused else f"every {self._interval:g} s")
        return Text.assemble((self._page.title, "bold"), "  ", (state, "bold red" if self._problem else ""))

    def _help(self, below: int) -> Text:
        more = f"  ({below} more lines)" if below > 0 else ""
        return Text(f"q quit  p {'go on' if self._is_paused else 'pause'}  ↑↓ scroll{more}", style="dim", end="")


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Without waiting for the end of a line, and without printing them; the terminal is as before afterwards."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _keys(seconds: float) -> list[str]:
    """The keys that are pressed within this time, each with its whole sequence. A terminal that is gone counts as q."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return []
    given = os.read(sys.stdin.fileno(), 1024)
    return _KEY.findall(given.decode(errors="ignore")) if given else ["q"]
