"""The pytest plugin: the `rival_lab` fixture. pytest loads this module for every test suite in an environment that has
Rival, so it imports engine code only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rival_workers.testing.lab import Lab


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rival_lab(**options): the options of the lab of the `rival_lab` fixture")


@pytest.fixture
def rival_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A new lab for the test: `@pytest.mark.rival_lab(continuation=False)` gives it options."""
    from rival_workers.testing.lab import Lab

    mark = request.node.get_closest_marker("rival_lab")
    with Lab(**(mark.kwargs if mark else {})) as lab:
        yield lab
