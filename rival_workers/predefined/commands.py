"""Runs one command to its end: its output read and cut, its whole process group ended when nobody wants it any more."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from rival_workers.errors import StepError

#: Seconds between two questions whether the attempt still counts, and between two looks for the command's end.
LOOK_EVERY = 0.5
#: Seconds that a command has to clean up after itself before it is killed.
GRACE = 2.0
#: Seconds after its timeout at which it is ended even if nobody could be asked.
SLACK = 10.0
_ERROR_TAIL = 2000

# On Linux a command is told to die with the worker's thread that waits for it: a killed worker's attempt is started
# again elsewhere, and two of them should not run at once. Done by a small program in between, because nothing of
# Python's may run between fork and exec while other threads hold locks.
_DIE_WITH_US = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]): os._exit(1)
os.execv(sys.argv[2], sys.argv[3:])
"""


@dataclass(frozen=True)
class Command:
    arguments: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    timeout: float | None
    max_output: int

    @property
    def name(self) -> str:
        return self.arguments[0]

    def start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._launch(), env=self.env, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise StepError(f"command {self.name!r} cannot be started: {error}") from None

    def _launch(self) -> list[str]:
        program = shutil.which(self.name, path=self.env.get("PATH", os.defpath))
        if program is None:
            raise StepError(f"command {self.name!r} is not there, or not executable, on this worker's PATH")
        if sys.platform != "linux":
            return list(self.arguments)
        trampoline = [sys.executable, "-I", "-S", "-c", _DIE_WITH_US, str(os.getpid())]
        return [*trampoline, os.path.abspath(program), *self.arguments]


class Tail:
    """The last bytes of an output."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self.cut = most, bytearray(), False

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        if len(self._kept) > self._most:
            self.cut = True
            del self._kept[: len(self._kept) - self._most]

    def __str__(self) -> str:
        # Postgres keeps no NUL in a text.
        return self._kept.decode("utf-8", "replace").replace("\x00", "\ufffd")


def run_command(command: Command, is_over: Callable[[], bool]) -> dict[str, Any]:
    stdout, stderr = Tail(command.max_output), Tail(max(command.max_output, _ERROR_TAIL))
    process = command.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr, _reading({process.stdout: stdout, process.stderr: stderr}) as selector:
            _follow(process, selector, command, is_over)
            # What is left in the pipes; a child that still holds them is none of ours any more.
            _read(selector, 0)
    finally:
        _end(process)
    return _answer(command, process.returncode, stdout, stderr)


@contextlib.contextmanager
def _reading(outputs: dict[IO[bytes], Tail]) -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        for pipe, tail in outputs.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, tail)
        yield selector


def _follow(
    process: subprocess.Popen[bytes], selector: selectors.BaseSelector, command: Command, is_over: Callable[[], bool]
) -> None:
    started = looked = time.monotonic()
    while process.poll() is None:
        if selector.get_map():
            _read(selector, LOOK_EVERY)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY)
        now = time.monotonic()
        if now - looked >= LOOK_EVERY:
            looked = now
            too_long = command.timeout is not None and now - started > command.timeout + SLACK
            if too_long or is_over():
                raise StepError(f"command {command.name!r} was ended: the run has gone on without this attempt")


def _read(selector: selectors.BaseSelector, timeout: float) -> None:
    """Whatever is there, until there is nothing more at once."""
    while ready := selector.select(timeout):
        timeout = 0
        for key, _ in ready:
            chunk = os.read(key.fd, 65_536)
            if chunk:
                key.data.add(chunk)
            else:
                selector.unregister(key.fileobj)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _answer(command: Command, code: int, stdout: Tail, stderr: Tail) -> dict[str, Any]:
    if code == 0:
        return {
            "exit_code": code, "stdout": str(stdout), "stderr": str(stderr), "truncated": stdout.cut or stderr.cut
        }  # fmt: skip
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    said = str(stderr).strip()[-_ERROR_TAIL:]
    raise StepError(f"command {command.name!r} {ended}{f': {said}' if said else ''}", behavior="retry")
