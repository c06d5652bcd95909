"""The parts of a template: constants, references, functions, lists and dicts of them. Each attempt fills them in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rival_workers.definition.inject import Injection
from rival_workers.errors import StepError
from rival_workers.predefined.references import Reference, as_text

Encode = Callable[[str], str]


class Part(Protocol):
    """A parsed value."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the context that it needs."""
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
    """A template that consists of one reference keeps the type of the value."""

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
    """A function with injected parameters."""

    injection: Injection

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.injection.positional, *self.injection.keywords))

    def fill(self, ctx: Any) -> Any:
        value = self.injection.call(ctx)
        if inspect.iscoroutine(value):
            value.close()
            raise StepError("a function for a value must not be async: make it a step")
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
    """The signature of a function with these parts, so that registration checks its names like those of any step."""
    names = sorted({"ctx"} | named(parts))
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
