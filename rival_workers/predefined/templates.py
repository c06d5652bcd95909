"""Values that are filled in for each attempt: `"{input.order_id}"` and functions, at any depth of lists and dicts.

A template names things and goes into them by attribute, key or index. It calls nothing and computes nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rival_workers.definition.inject import IN_ITEM, STEP_NAMES, Injection, injection
from rival_workers.errors import StepError
from rival_workers.predefined.references import Reference, as_text

#: What a template may begin with: data, no tools.
ROOTS = ("input", "steps", "last_step", "run", "item", "index")

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<inner>[^{}]*)\}|(?P<stray>[{}])")
_REFERENCE = re.compile(r"(?P<root>[A-Za-z]\w*)(?P<ways>(?:\.\w+|\[[^\[\]]+\])*)")
_WAY = re.compile(r"\.(?P<name>\w+)|\[(?P<key>[^\[\]]+)\]")

Encode = Callable[[str], str]


class Part(Protocol):
    """One value, parsed."""

    @property
    def names(self) -> frozenset[str]:
        """What of the context it needs."""
        ...

    def fill(self, ctx: Any) -> Any: ...


@dataclass(frozen=True)
class Constant:
    value: Any
    names: frozenset[str] = frozenset()

    def fill(self, ctx: Any) -> Any:
        return self.value


@dataclass(frozen=True)
class Whole:
    """A template that is nothing but one reference keeps the type of what it refers to."""

    reference: Reference

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.reference.root})

    def fill(self, ctx: Any) -> Any:
        return self.reference.resolve(ctx)


@dataclass(frozen=True)
class Text:
    """Text with references in it."""

    pieces: tuple[str | Reference, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(piece.root for piece in self.pieces if isinstance(piece, Reference))

    def fill(self, ctx: Any, encode: Encode = str) -> str:
        return "".join(
            piece if isinstance(piece, str) else encode(as_text(piece, piece.resolve(ctx))) for piece in self.pieces
        )


@dataclass(frozen=True)
class Computed:
    """A function of whatever it names."""

    injection: Injection

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.injection.positional, *self.injection.keywords))

    def fill(self, ctx: Any) -> Any:
        value = self.injection.call(ctx)
        if inspect.iscoroutine(value):
            value.close()
            raise StepError("a function that fills a value in must not be async: make it a step of its own")
        return value


@dataclass(frozen=True)
class Listed:
    parts: tuple[Part, ...]

    @property
    def names(self) -> frozenset[str]:
        return named(self.parts)

    def fill(self, ctx: Any) -> list[Any]:
        return [part.fill(ctx) for part in self.parts]


@dataclass(frozen=True)
class Mapped:
    parts: Mapping[Any, Part]

    @property
    def names(self) -> frozenset[str]:
        return named(self.parts.values())

    def fill(self, ctx: Any) -> dict[Any, Any]:
        return {key: part.fill(ctx) for key, part in self.parts.items()}


def named(parts: Iterable[Part]) -> frozenset[str]:
    return frozenset[str]().union(*(part.names for part in parts))


def signature(parts: Iterable[Part]) -> inspect.Signature:
    """A function made of these parts asks for what they name, so that registration checks it as any other's."""
    names = sorted({"ctx"} | named(parts))
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])


# -- parsing ----------------------------------------------------------------------------------------------


def parse(value: Any, where: str, problems: list[str]) -> Part:
    """Whatever is wrong is added to `problems`, with where it was found."""
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
            raise ValueError("must not be async: make it a step of its own")
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
            problems.append(f"{where}: there is a single {token[0]}: write {token[0] * 2} for the character itself")
        elif token["inner"] is None:
            pieces.append(token[0][0])
        else:
            pieces.append(_reference(token["inner"], where, problems))
    return Text(_joined([*pieces, template[end:]]))


def _joined(pieces: list[str | Reference]) -> tuple[str | Reference, ...]:
    """Neighbouring texts as one, empty ones left out."""
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
    ways = tuple((way["name"] or way["key"], way["key"] is not None) for way in _WAY.finditer(found["ways"]))
    return Reference(found["root"], ways, inner)


def _problem(inner: str, found: re.Match[str] | None) -> str:
    if found is None:
        return "cannot be read: give a name with attributes, keys and indexes only, like {input.lines[0].sku}"
    if found["root"] not in ROOTS:
        return f"begins with {found['root']!r}; a template begins with one of {', '.join(ROOTS)}"
    for way in _WAY.finditer(found["ways"]):
        if (way["name"] or "").startswith("_") or "__" in (way["key"] or ""):
            return f"goes into {way['name'] or way['key']!r}: names with a leading underscore are private"
    return ""
