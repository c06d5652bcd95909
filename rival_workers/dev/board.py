"""The notes between a starter and the supervisor: what is wanted (`request.json`), what there is (`stack.json`).

A starter writes a request with an id of its own; the supervisor brings up what it names and says which id it
has answered. Both files are replaced in one piece, so a reader sees an old note or a new one, never half of one.
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
class Board:
    """What the supervisor says of its servers."""

    supervisor: int
    answered: str = ""
    servers: dict[str, Running] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def has(self, names: Iterable[str]) -> bool:
        return all(name in self.servers for name in names)


@dataclass(frozen=True)
class Places:
    """Where the files of one stack are."""

    directory: Path

    @property
    def users_lock(self) -> Path:
        return self.directory / "users.lock"

    @property
    def start_lock(self) -> Path:
        return self.directory / "start.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.directory / "supervisor.lock"

    @property
    def supervisor_log(self) -> Path:
        return self.directory / "supervisor.log"

    @property
    def request(self) -> Path:
        return self.directory / "request.json"

    @property
    def board(self) -> Path:
        return self.directory / "stack.json"

    def prepare(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = self.directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")  # data and a password: never into a repository


def read_request(places: Places) -> Request | None:
    note = _read(places.request)
    return None if note is None else Request(note["id"], tuple(note["names"]))


def read_board(places: Places) -> Board | None:
    note = _read(places.board)
    if note is None:
        return None
    servers = {name: Running(**server) for name, server in note.pop("servers").items()}
    return Board(servers=servers, **note)


def write_atomically(path: Path, note: dict[str, Any]) -> None:
    """Readable by its owner alone: most of these notes hold a password."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(fd, "w") as file:
        json.dump(note, file, indent=2)
    os.replace(name, path)


def write_request(places: Places, request: Request) -> None:
    write_atomically(places.request, asdict(request))


def write_board(places: Places, board: Board) -> None:
    write_atomically(places.board, asdict(board))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        note: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return note
