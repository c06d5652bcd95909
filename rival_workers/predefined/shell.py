"""`shell_step(["convert", "{input.file}", "out.png"])`: a command as a step, on workers that allow it.

The command is a list of arguments, without a shell: a filled-in value is always one argument.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import IO, Any, Unpack

from rival_client.model.policies.policy_options import seconds
from rival_workers.definition.options import PredefinedOptions
from rival_workers.definition.steps import PlanStep, StepSpec
from rival_workers.errors import StepError
from rival_workers.predefined.references import Reference
from rival_workers.predefined.template_parts import Constant, Part, Text, signature
from rival_workers.predefined.templates import parse, parse_function, parse_text
from rival_workers.settings import minimal_environment

MAX_OUTPUT = 64 * 1024
#: Programs whose argument after -c or -e is code: a value inside it would be code, too.
_INTERPRETERS = re.compile(r"(?:ba|da|z|k|a)?sh|python[\d.]*|perl|ruby|node")
#: Seconds between two checks whether the attempt is still valid, and whether the command has ended.
POLL_INTERVAL = 0.5
#: Seconds from SIGTERM to SIGKILL.
GRACE = 2.0
#: Seconds after its timeout at which the command is killed even if the state of the attempt is unknown.
SLACK = 10.0
_ERROR_TAIL = 2000

# On Linux a command dies with the worker's thread that waits for it: the attempt of a killed worker is started again
# elsewhere, and two commands of one step should not run at once. A small program between worker and command requests
# that, because Python code between fork and exec can deadlock on locks of other threads.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]): os._exit(1)
os.execv(sys.argv[2], sys.argv[3:])
"""


def shell_step(
    command: Sequence[Any],
    *,
    env: Mapping[str, Any] | None = None,
    cwd: Any = None,
    timeout: float | dt.timedelta | None = None,
    max_output: int = MAX_OUTPUT,
    name: str | None = None,
    **options: Unpack[PredefinedOptions],
) -> PlanStep:
    """Its result is `{"exit_code": 0, "stdout": "…", "stderr": "…"}`, each output cut to its last `max_output` bytes.

    Arguments, `env` and `cwd` may contain templates and functions. The command gets PATH, HOME, LANG and `env`, and no
    other variable of the worker. It is killed with all its children when the step times out or the run is cancelled.
    An exit code other than 0 is a failure, retried up to `max_attempts`. `options` are those of any step.
    """
    problems = list(_problems(command, env, max_output))
    listed = command if not problems else ["-"]
    arguments = tuple(_argument(value, n, problems) for n, value in enumerate(listed))
    _check_code(arguments, problems)
    function = ShellStep(
        arguments=arguments,
        env=parse(env or {}, "env", problems),
        cwd=parse(os.fspath(cwd) if isinstance(cwd, PurePath) else cwd, "cwd", problems),
        timeout=seconds(timeout),
        max_output=max_output,
    )
    limits = {} if timeout is None else {"timeout": timeout}
    return StepSpec(function, {"name": name or _name(listed), **limits, **options}, tuple(problems), only_in_plans=True)


def _problems(command: Any, env: Any, max_output: Any) -> Iterable[str]:
    if isinstance(command, str) or not isinstance(command, Sequence):
        yield (
            "a command is a list of arguments, not a text: shell_step(['grep', '-c', '{input.word}', 'file.txt']). "
            "No shell splits it"
        )
    elif not command or not isinstance(command[0], str | PurePath) or "{" in str(command[0]):
        yield "the program, the first of the list, must be a constant: not a template, not a function"
    if env is not None and not isinstance(env, Mapping):
        yield f"option env: give a dict, not a {type(env).__name__}"
    if isinstance(max_output, bool) or not isinstance(max_output, int) or max_output < 0:
        yield f"option max_output: give a whole number from 0 on, not {max_output!r}"


def _name(command: Sequence[Any]) -> str:
    return f"shell_{re.sub(r'[^A-Za-z0-9_.-]', '_', PurePath(command[0]).name)}"


def _argument(value: Any, n: int, problems: list[str]) -> Part:
    where = f"argument {n}"
    if isinstance(value, str):
        return parse_text(value, where, problems)
    if callable(value):
        return parse_function(value, where, problems)
    if isinstance(value, bool) or not isinstance(value, int | float | PurePath):
        problems.append(f"{where}: give a text, a number, a path or a function, not {value!r}")
    return Constant(str(value))


def _check_code(arguments: Sequence[Part], problems: list[str]) -> None:
    program = PurePath(arguments[0].fill(None)).name
    for flag, code in pairwise(arguments):
        is_code = isinstance(flag, Text) and flag.pieces in (("-c",), ("-e",), ("-lc",))
        if is_code and isinstance(code, Text) and code.names and _INTERPRETERS.fullmatch(program):
            problems.append(
                f"a value inside the code for {program} would run as code: "
                """give it as an argument, ["sh", "-c", 'echo "$1"', "sh", "{input.word}"]"""
            )


@dataclass(frozen=True, kw_only=True)
class ShellStep:
    """The step's function."""

    arguments: tuple[Part, ...]
    env: Part
    cwd: Part
    timeout: float | None
    max_output: int

    @property
    def __signature__(self) -> inspect.Signature:
        return signature((*self.arguments, self.env, self.cwd))

    def __call__(self, ctx: Any, **_named: Any) -> dict[str, Any]:
        if not ctx.allow_shell:
            raise StepError(
                "this worker does not run commands: set RIVAL_ALLOW_SHELL=1 for the workers that may "
                "(embedded(…, allow_shell=True) in library mode)"
            )
        env = {str(name): str(value) for name, value in self.env.fill(ctx).items() if value is not None}
        cwd = self.cwd.fill(ctx)
        arguments, directory = tuple(self._filled(ctx)), None if cwd is None else str(cwd)
        command = Command(arguments, {**minimal_environment(), **env}, directory, self.timeout, self.max_output)
        return run_command(command, ctx.is_over)

    def _filled(self, ctx: Any) -> Iterable[str]:
        only_operands = False
        for n, part in enumerate(self.arguments):
            value = str(part.fill(ctx))
            if not only_operands and value.startswith("-") and _begins_with_a_value(part):
                raise StepError(
                    f"argument {n} begins with '-' after it was filled in: {self.arguments[0].fill(ctx)} would read it "
                    "as an option. Put '--' before it in the list if the command supports that, or give a function."
                )
            only_operands = only_operands or value == "--"
            yield value


def _begins_with_a_value(part: Part) -> bool:
    return isinstance(part, Text) and bool(part.pieces) and isinstance(part.pieces[0], Reference)


# -- running the command -----------------------------------------------------------------------------------


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
                self._launch(),
                env=self.env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise StepError(f"command {self.name!r} cannot be started: {error}") from None

    def _launch(self) -> list[str]:
        program = shutil.which(self.name, path=self.env.get("PATH", os.defpath))
        if program is None:
            raise StepError(f"command {self.name!r} is missing or not executable on this worker's PATH")
        if sys.platform != "linux":
            return list(self.arguments)
        trampoline = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        return [*trampoline, os.path.abspath(program), *self.arguments]


class Tail:
    """The last bytes of an output."""

    def __init__(self, limit: int) -> None:
        self._limit, self._kept, self.cut = limit, bytearray(), False

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        if len(self._kept) > self._limit:
            self.cut = True
            del self._kept[: len(self._kept) - self._limit]

    def __str__(self) -> str:
        # Postgres cannot store NUL in text.
        return self._kept.decode("utf-8", "replace").replace("\x00", "\ufffd")


def run_command(command: Command, is_over: Callable[[], bool]) -> dict[str, Any]:
    """Runs the command to its end, and kills its process group when the attempt is over."""
    stdout, stderr = Tail(command.max_output), Tail(max(command.max_output, _ERROR_TAIL))
    process = command.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr, _reading({process.stdout: stdout, process.stderr: stderr}) as selector:
            _follow(process, selector, command, is_over)
            # Reads the rest of the pipes without waiting for children that still hold them.
            _read(selector, 0)
    finally:
        _kill(process)
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
    started = checked = time.monotonic()
    while process.poll() is None:
        if selector.get_map():
            _read(selector, POLL_INTERVAL)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_INTERVAL)
        now = time.monotonic()
        if now - checked >= POLL_INTERVAL:
            checked = now
            too_long = command.timeout is not None and now - started > command.timeout + SLACK
            if too_long or is_over():
                raise StepError(f"command {command.name!r} was killed: the attempt is no longer valid")


def _read(selector: selectors.BaseSelector, timeout: float) -> None:
    """Reads until nothing is available at once."""
    while ready := selector.select(timeout):
        timeout = 0
        for key, _ in ready:
            chunk = os.read(key.fd, 65_536)
            if chunk:
                key.data.add(chunk)
            else:
                selector.unregister(key.fileobj)


def _kill(process: subprocess.Popen[bytes]) -> None:
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
        outputs = {"stdout": str(stdout), "stderr": str(stderr), "truncated": stdout.cut or stderr.cut}
        return {"exit_code": code, **outputs}
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    output = str(stderr).strip()[-_ERROR_TAIL:]
    raise StepError(f"command {command.name!r} {ended}{f': {output}' if output else ''}", behavior="retry")
