"""The output of commands: tables for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rival_workers.cli.display.formats import encode, one_line, printable

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

#: The width without a terminal, so that nothing is cut.
_UNLIMITED = 2000
_MAX_ERROR = 10_000


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _UNLIMITED, highlight=False, soft_wrap=True)


class ProgressLine:
    """One line on stderr that is replaced while a command works, and removed at the end. On a terminal only, and never
    with --json."""

    def __init__(self, as_json: bool) -> None:
        self._is_shown = sys.stderr.isatty() and not as_json

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        self._write(one_line(printable(text), max(20, console(stderr=True).width - 1)))

    def _write(self, text: str) -> None:
        if self._is_shown:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, default=encode, ensure_ascii=False, indent=2))


def print_json_line(value: Any) -> None:
    click.echo(json.dumps(value, default=encode, ensure_ascii=False))


def print_error(error: Exception, message: str, as_json: bool) -> None:
    # It may quote an argument of any length.
    message = message if len(message) <= _MAX_ERROR else f"{message[:_MAX_ERROR]}…"
    if as_json:
        problems = {"problems": error.problems} if hasattr(error, "problems") else {}
        shown = {"error": {"type": type(error).__name__, "message": message, **problems}}
        click.echo(json.dumps(shown, default=encode, ensure_ascii=False), err=True)
    else:
        click.echo(f"rival: {printable(message)}", err=True)


# -- records as text --------------------------------------------------------------------------------------


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """Cells are text, never markup: values of users must not format the terminal or move its cursor."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, no_wrap=name in ("run", "status", "attempts", "took"))
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    return made
