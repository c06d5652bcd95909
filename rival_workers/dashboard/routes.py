"""The route table: the routes of every module in `api`, each with the role that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from rival_workers.dashboard import api
from rival_workers.dashboard.route import Route


def _listed() -> Iterator[Route]:
    """What the modules list as ROUTES: a new module needs no entry elsewhere."""
    for found in iter_modules(api.__path__):
        yield from getattr(import_module(f"{api.__name__}.{found.name}"), "ROUTES", ())


def _parameters(route: Route) -> list[bool]:
    """Sorts a literal before a parameter at the same place: `/runs/counts` is not a run."""
    return [part.startswith("{") for part in route.path.split("/")]


TABLE: tuple[Route, ...] = tuple(sorted(_listed(), key=_parameters))
