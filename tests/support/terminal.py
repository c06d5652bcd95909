"""A command on a pseudo-terminal, and the screen that its output makes: what a person would see."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

_CODE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78]|[\r\n\b]|[^\x1b\r\n\b]+")


class Screen:
    """As many lines as were ever printed, of which the cursor reaches the last `height`. Colours are ignored; any other
    sequence that it does not know is an error."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._lines, self._row, self._column = [""], 0, 0
        self.titles: list[str] = []

    @property
    def lines(self) -> list[str]:
        """Without the spaces at the end of lines and the empty lines at the end."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip("\n").split("\n")

    def feed(self, text: str) -> None:
        end = 0
        for found in _CODE.finditer(text):
            assert found.start() == end, f"unknown sequence {text[end : found.start()]!r}"
            end = found.end()
            if found[2] is not None:
                self._control(found[1], found[2])
            elif found[0] == "\r":
                self._column = 0
            elif found[0] == "\n":
                self._move(self._row + 1)
            elif not found[0].startswith("\x1b"):
                self._write(found[0])

    def _move(self, row: int) -> None:
        top = max(0, len(self._lines) - self._height)
        self._row = max(row, top)
        while self._row >= len(self._lines):
            self._lines.append("")

    def _write(self, text: str) -> None:
        for sign in text:
            if self._column >= self._width:
                self._move(self._row + 1)
                self._column = 0
            line = self._lines[self._row].ljust(self._column)
            self._lines[self._row] = line[: self._column] + sign + line[self._column + 1 :]
            self._column += 1

    def _control(self, numbers: str, letter: str) -> None:
        number = int(numbers) if numbers.isdigit() else 1
        match letter:
            case "A":
                self._move(self._row - number)
            case "H":
                self._move(max(0, len(self._lines) - self._height))
                self._column = 0
            case "K":
                line = self._lines[self._row]
                self._lines[self._row] = "" if numbers == "2" else line[: self._column]
            case "J":
                del self._lines[self._row + 1 :]
            case "h" | "l" if numbers == "?1049":
                self._lines, self._row, self._column = [""], 0, 0
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(f"unknown sequence ESC [ {numbers} {letter}")


class Terminal:
    """`rival …` on a pseudo-terminal of that size."""

    def __init__(self, args: Sequence[str], cwd: Path, env: dict[str, str], size: tuple[int, int] = (80, 24)) -> None:
        self._main, side = pty.openpty()
        self._size = size
        self.resize(*size)
        self.raw = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rival_workers.cli", *args],
            cwd=cwd,
            env=env | {"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        self._side = side
        self.before = termios.tcgetattr(side)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(10)
        os.close(self._main)
        os.close(self._side)

    @property
    def settings(self) -> list[object]:
        """Of the terminal now: echo, line by line, …"""
        return termios.tcgetattr(self._side)

    def resize(self, width: int, height: int) -> None:
        self._size = (width, height)
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def interrupt(self) -> None:
        self._process.send_signal(2)

    def _read(self, seconds: float) -> None:
        while select.select([self._main], [], [], seconds)[0]:
            try:
                self.raw += os.read(self._main, 65536)
            except OSError:
                return
            seconds = 0.0

    @property
    def screen(self) -> list[str]:
        self._read(0.0)
        screen = Screen(*self._size)
        screen.feed(self.raw.decode(errors="ignore"))
        return screen.lines

    def wait_for(self, condition: Callable[[list[str]], bool], timeout: float = 60.0) -> list[str]:
        """The first screen that fits."""
        until = time.monotonic() + timeout
        while not condition(lines := self.screen):
            if time.monotonic() > until:
                raise AssertionError("the screen was:\n" + "\n".join(lines))
            self._read(0.1)
        return lines

    def wait_for_text(self, text: str, timeout: float = 60.0) -> list[str]:
        return self.wait_for(lambda lines: any(text in line for line in lines), timeout)

    def end(self, timeout: float = 30.0) -> int:
        """Its exit code; what it prints meanwhile is read, or it would wait for that."""
        until = time.monotonic() + timeout
        while self._process.poll() is None:
            assert time.monotonic() < until, "\n".join(self.screen)
            self._read(0.05)
        return self._process.wait()
