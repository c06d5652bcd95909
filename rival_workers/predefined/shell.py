"""`shell_step(["convert", "{input.file}", "out.png"])`: a command as a step, on workers that allow it.

A list of arguments and no shell: what is filled in is one argument, whatever it holds.
"""

from __future__ import annotations

import datetime as dt
import inspect
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Unpack

from rival_workers.definition.options import PredefinedOptions
from rival_workers.definition.steps import PlanStep, StepSpec, seconds
from rival_workers.errors import StepError
from rival_workers.predefined.commands import Command, run_command
from rival_workers.predefined.references import Reference
from rival_workers.predefined.templates import Constant, Part, Text, parse, parse_function, parse_text, signature
from rival_workers.settings import minimal_environment

MOST_OUTPUT = 64 * 1024
#: What they are told with -c or -e is code: a value in the middle of it would be, too.
_INTERPRETERS = re.compile(r"(?:ba|da|z|k|a)?sh|python[\d.]*|perl|ruby|node")


def shell_step(
    command: Sequence[Any],
    *,
    env: Mapping[str, Any] | None = None,
    cwd: Any = None,
    timeout: float | dt.timedelta | None = None,
    max_output: int = MOST_OUTPUT,
    name: str | None = None,
    **options: Unpack[PredefinedOptions],
) -> PlanStep:
    """Its result is `{"exit_code": 0, "stdout": "…", "stderr": "…"}`, each output cut to its last `max_output` bytes.

    Arguments, `env` and `cwd` may hold templates and functions. The command sees PATH, HOME, LANG and `env`, nothing
    else of the worker's environment. It is ended with all its children when the step times out or the run is
    cancelled. Any other exit than 0 is a failure, tried again as `max_attempts` says. `options` are those of any step.
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
            "There is no shell that would take it apart"
        )
    elif not command or not isinstance(command[0], str | PurePath) or "{" in str(command[0]):
        yield "the command itself, the first of the list, must be given as it is: no template, no function"
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
                f"a value in the code for {program} would be code, too: "
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
                "this worker does not start commands: set RIVAL_ALLOW_SHELL=1 for the workers that may "
                "(embedded(…, allow_shell=True) in library mode)"
            )
        env = {str(name): str(value) for name, value in self.env.fill(ctx).items() if value is not None}
        cwd = self.cwd.fill(ctx)
        command = Command(
            tuple(self._filled(ctx)), {**minimal_environment(), **env}, None if cwd is None else str(cwd),
            self.timeout, self.max_output,
        )  # fmt: skip
        return run_command(command, ctx.is_over)

    def _filled(self, ctx: Any) -> Iterable[str]:
        only_operands = False
        for n, part in enumerate(self.arguments):
            value = str(part.fill(ctx))
            if not only_operands and value.startswith("-") and _begins_with_a_value(part):
                raise StepError(
                    f"argument {n} begins with '-' after it was filled in: {self.arguments[0].fill(ctx)} would take it "
                    "for an option. Put '--' before it in the list if the command knows that, or give a function."
                )
            only_operands = only_operands or value == "--"
            yield value


def _begins_with_a_value(part: Part) -> bool:
    return isinstance(part, Text) and bool(part.pieces) and isinstance(part.pieces[0], Reference)
