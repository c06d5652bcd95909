"""The route table: the routes of every module that `api` lists, each with the role that it needs."""

from __future__ import annotations

from rival_workers.dashboard import api
from rival_workers.dashboard.api import *  # noqa: F403  imports the modules of `__all__`
from rival_workers.dashboard.route import Route


def _parameters(route: Route) -> list[bool]:
    """Sorts a literal before a parameter at the same place: `/runs/counts` is not a run."""
    return [part.startswith("{") for part in route.path.split("/")]


TABLE: tuple[Route, ...] = tuple(
    sorted((route for name in api.__all__ for route in getattr(api, name).ROUTES), key=_parameters)
)
