"""Imports the public names of a package when they are first used: importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def late_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """The package's `__getattr__`. `modules`: each module with the names that it has."""
    places = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(places[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
