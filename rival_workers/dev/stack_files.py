"""The files between a starter and the supervisor: requested servers (`request.json`), running servers (`stack.json`).

A starter writes a request with a new id; the supervisor starts the servers and writes the id that it has answered.
Both files are replaced atomically, so a reader sees the old content or the new one, never a part.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rival_workers.dev.stack_paths import StackPaths

DATABASE = "database"
BROKER = "broker"


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    pid: int


@dataclass(frozen=True)
class Request:
    """Which servers a starter needs."""

    id: str
    names: tuple[str, ...]

    @classmethod
    def new(cls, names: Iterable[str]) -> Request:
        return cls(uuid.uuid4().hex, tuple(names))


@dataclass(frozen=True)
class StackState:
    """The state of the servers, written by the supervisor."""

    supervisor: int
    answered: str = ""
    servers: dict[str, Running] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def has(self, names: Iterable[str]) -> bool:
        return all(name in self.servers for name in names)


def read_request(paths: StackPaths) -> Request | None:
    content = _read(paths.request)
    return None if content is None else Request(content["id"], tuple(content["names"]))


def read_state(paths: StackPaths) -> StackState | None:
    content = _read(paths.state)
    if content is None:
        return None
    servers = {name: Running(**server) for name, server in content.pop("servers").items()}
    return StackState(servers=servers, **content)


def write_atomically(path: Path, content: dict[str, Any]) -> None:
    """Readable only by the owner: most of these files contain a password."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(fd, "w") as file:
        json.dump(content, file, indent=2)
    os.replace(name, path)


def write_request(paths: StackPaths, request: Request) -> None:
    write_atomically(paths.request, asdict(request))


def write_state(paths: StackPaths, state: StackState) -> None:
    write_atomically(paths.state, asdict(state))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content
