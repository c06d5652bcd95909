"""The default registry of this process, and its replacement while files are loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rival_workers.definition.registry import Registry

#: The registry of `.register()` and the file loaders, unless another one is given.
default_registry = Registry()

_instead = threading.local()


def registry_for(given: Registry | None) -> Registry:
    """The given registry, or the default one."""
    if given is not None:
        return given
    instead: Registry = getattr(_instead, "registry", default_registry)
    return instead


@contextmanager
def registering_in(registry: Registry) -> Iterator[None]:
    """Replaces the default registry in this thread: for files that register their workflows themselves."""
    before = getattr(_instead, "registry", default_registry)
    _instead.registry = registry
    try:
        yield
    finally:
        _instead.registry = before
