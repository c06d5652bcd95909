"""Writes an action as the equivalent command for a shell, for Python and for curl."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rival_client.sql.reads.run_filter import RunFilter

Commands = dict[str, str]
#: Lines that a text has at most.
_LINES = 20


def commands(base: str, path: str, shell: str, python: str, body: Mapping[str, Any], method: str = "POST") -> Commands:
    """`path`: below the API. Values are those that were given, so nothing that was hidden can be in them."""
    return {"shell": shell, "python": python, "curl": curl_text(base, path, body, method)}


def curl_text(base: str, path: str, body: Mapping[str, Any], method: str = "POST") -> str:
    call = shlex.join([method, f"{base}api/v1/{path}", "-H", "Content-Type: application/json"])
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f'curl -X {call} -H "Authorization: Bearer $RIVAL_TOKEN" -d {data}'


def shell_text(command: str, /, *given: str, **options: Any) -> str:
    """`rival rewind r charge --by ann`. Options: None is left out, True is a flag, a list repeats the option."""
    named = [word for name, value in options.items() for word in _option(name, value)]
    # After `--`, an argument that looks like an option is not one.
    words = [*named, "--", *given] if any(one.startswith("-") for one in given) else [*given, *named]
    return shlex.join(["rival", *command.split(), *words])


def _option(name: str, value: Any) -> Iterator[str]:
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return
    if value is True:
        yield option
        return
    for one in value if isinstance(value, list) else [value]:
        text = str(one)
        yield from (f"{option}={text}",) if text.startswith("-") else (option, text)


def each_line(lines: Iterable[str]) -> str:
    """Several commands, one per line."""
    found = list(lines)
    more = [f"# and {len(found) - _LINES:,} more"] if len(found) > _LINES else []
    return "\n".join([*found[:_LINES], *more])


def call_text(method: str, /, *args: Any, **named: Any) -> str:
    """`rival.rewind('r', 'charge')`"""
    given = ", ".join([*map(_literal, args), *_keywords(named)])
    return f"rival.{method}({given})"


def _keywords(named: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{key}={_literal(value)}" for key, value in named.items() if value is not None)


def _literal(value: Any) -> str:
    match value:
        case dt.datetime():
            return f"datetime.fromisoformat({value.isoformat()!r})"
        case RunFilter():
            return f"RunFilter({', '.join(_keywords(vars(value)))})"
        case _:
            return repr(value)


def incomplete(texts: Commands, *kinds: str) -> Commands:
    """With the texts of these kinds as comments: they have `***` in place of values that are hidden."""
    return texts | {
        kind: "\n".join(["# Put in the hidden values (***) first:", *_comments(texts[kind])]) for kind in kinds
    }


def _comments(text: str) -> Iterator[str]:
    yield from (line if line.startswith("#") else f"# {line}" for line in text.split("\n"))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
