"""Finds names in a workflow file that are almost `steps`, `on_error` or `Input`, and would silently have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from types import FunctionType, ModuleType
from typing import Any

from rival_workers.definition.composite_specs import CompositeSpec
from rival_workers.definition.leaf_nodes import is_leaf


def misspelt(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Lists of steps under a name that is almost `steps`: the file would silently have no workflow."""
    names = {} if hasattr(module, "steps") else vars(module)
    for name, value in names.items():
        is_list = isinstance(value, list | tuple) and bool(value) and all(map(_is_step_like, value))
        if is_list and get_close_matches(name.lower(), ["steps"], 1, 0.7):
            yield name, f"found {name} = [{len(value)} steps], but no `steps`: rename it to steps"


def _is_step_like(thing: Any) -> bool:
    return is_leaf(thing) or isinstance(thing, CompositeSpec)


def lookalikes(module: ModuleType) -> Iterator[str]:
    """Names that are almost `on_error` or `Input`, and would silently have no effect."""
    names = vars(module)
    for name, value in names.items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        plain = name.lower().replace("_", "").removesuffix("s")
        if plain == "onerror" and isinstance(value, FunctionType) and "on_error" not in names:
            yield f"{name} is not on_error: call it on_error if it is the workflow's handler"
        if plain == "input" and isinstance(value, type) and not names.keys() & {"Input", "input"}:
            yield f"{name} is not Input: call it Input if it is the workflow's input"
