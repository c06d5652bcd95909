"""Parses values that each attempt fills in: `"{input.order_id}"` and functions, at any depth of lists and dicts.

A template refers to values by name, attribute, key and index. It cannot call functions or compute.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rival_workers.definition.inject import IN_ITEM, STEP_NAMES, injection
from rival_workers.predefined.references import Reference
from rival_workers.predefined.template_parts import Computed, Constant, Listed, Mapped, Part, Text, Whole

#: The names that a template may begin with: only data.
ROOTS = ("input", "steps", "last_step", "run", "item", "index")

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<inner>[^{}]*)\}|(?P<stray>[{}])")
_REFERENCE = re.compile(r"(?P<root>[A-Za-z]\w*)(?P<accessors>(?:\.\w+|\[[^\[\]]+\])*)")
_ACCESSOR = re.compile(r"\.(?P<name>\w+)|\[(?P<key>[^\[\]]+)\]")


# -- parsing ----------------------------------------------------------------------------------------------


def parse(value: Any, where: str, problems: list[str]) -> Part:
    """Adds problems to `problems`, each with its place."""
    if isinstance(value, str):
        text = parse_text(value, where, problems)
        [only, *more] = text.pieces or ("",)
        if more:
            return text
        return Constant(only) if isinstance(only, str) else Whole(only)
    if isinstance(value, Mapping):
        return Mapped({key: parse(inner, f"{where}[{key!r}]", problems) for key, inner in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return Listed(tuple(parse(inner, f"{where}[{n}]", problems) for n, inner in enumerate(value)))
    return parse_function(value, where, problems) if callable(value) else Constant(value)


def parse_function(function: Any, where: str, problems: list[str]) -> Part:
    try:
        if inspect.iscoroutinefunction(function):
            raise ValueError("must not be async: make it a step")
        return Computed(injection(function, (*STEP_NAMES, *IN_ITEM)))
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return Constant(None)


def parse_text(template: str, where: str, problems: list[str]) -> Text:
    pieces: list[str | Reference] = []
    end = 0
    for token in _TOKEN.finditer(template):
        pieces.append(template[end : token.start()])
        end = token.end()
        if token["stray"]:
            problems.append(f"{where}: found a single {token[0]}: write {token[0] * 2} for the character itself")
        elif token["inner"] is None:
            pieces.append(token[0][0])
        else:
            pieces.append(_reference(token["inner"], where, problems))
    return Text(_joined([*pieces, template[end:]]))


def _joined(pieces: list[str | Reference]) -> tuple[str | Reference, ...]:
    """Joins adjacent strings and drops empty ones."""
    joined: list[str | Reference] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece:
            joined.append(piece)
    return tuple(joined)


def _reference(inner: str, where: str, problems: list[str]) -> str | Reference:
    found = _REFERENCE.fullmatch(inner)
    problem = _problem(inner, found)
    if problem or found is None:
        problems.append(f"{where}: template {{{inner}}} {problem}")
        return ""
    accessors = tuple(
        (accessor["name"] or accessor["key"], accessor["key"] is not None)
        for accessor in _ACCESSOR.finditer(found["accessors"])
    )
    return Reference(found["root"], accessors, inner)


def _problem(inner: str, found: re.Match[str] | None) -> str:
    if found is None:
        return "is invalid: give a name with attributes, keys and indexes, like {input.lines[0].sku}"
    if found["root"] not in ROOTS:
        return f"begins with {found['root']!r}; a template begins with one of {', '.join(ROOTS)}"
    for accessor in _ACCESSOR.finditer(found["accessors"]):
        if (accessor["name"] or "").startswith("_") or "__" in (accessor["key"] or ""):
            return f"refers to {accessor['name'] or accessor['key']!r}: names with a leading underscore are private"
    return ""
