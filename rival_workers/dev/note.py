"""What a running `rival dev` leaves in its folder for others to find: `dev.json`, true while `dev.lock` is held."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rival_workers.dev.board import write_atomically
from rival_workers.dev.errors import StackError
from rival_workers.dev.locks import FileLock

_TIMEOUT = 10.0


@dataclass(frozen=True)
class DevNote:
    """The servers that a `rival dev` uses, its own or the environment's."""

    database_url: str
    broker_url: str


def running_dev(directory: Path) -> DevNote | None:
    """The note of the `rival dev` that runs in `directory`, if one does."""
    if not _note(directory).exists() or not _is_held(directory):
        return None
    try:
        return DevNote(**json.loads(_note(directory).read_text()))
    except FileNotFoundError:
        return None  # it stopped in between


class Announcement:
    """A `rival dev`'s own note, for as long as the block runs; several in one folder share it."""

    def __init__(self, directory: Path, note: DevNote) -> None:
        self._directory, self._lock = directory, FileLock(_lock(directory))
        if not self._lock.lock(_TIMEOUT, shared=True):
            raise StackError(f"Somebody holds {_lock(directory)} and does not let go of it.")
        write_atomically(_note(directory), asdict(note))

    def __enter__(self) -> Announcement:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        with FileLock(_lock(self._directory)) as probe:
            if probe.try_lock():
                _note(self._directory).unlink(missing_ok=True)


def _is_held(directory: Path) -> bool:
    with FileLock(_lock(directory)) as probe:
        return not probe.try_lock()


def _note(directory: Path) -> Path:
    return directory / "dev.json"


def _lock(directory: Path) -> Path:
    return directory / "dev.lock"
