"""How other commands find a running `rival dev`: `dev.json` in its folder, valid while `dev.lock` is held. And
which URLs are those of its own servers, which need not run."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rival_workers.dev.errors import StackError
from rival_workers.dev.file_lock import FileLock, is_locked
from rival_workers.dev.private_directories import socket_directory
from rival_workers.dev.stack_files import write_atomically
from rival_workers.dev.stack_paths import StackPaths

_TIMEOUT = 10.0


@dataclass(frozen=True)
class DevServers:
    """The servers that a `rival dev` uses, its own or the environment's."""

    database_url: str
    broker_url: str


def running_dev(directory: Path) -> DevServers | None:
    """The servers of the `rival dev` that runs in `directory`; None if none runs."""
    if not _dev_file(directory).exists() or not _is_held(directory):
        return None
    try:
        return DevServers(**json.loads(_dev_file(directory).read_text()))
    except FileNotFoundError:
        return None  # it stopped in between


class Announcement:
    """Announces the servers of a `rival dev` while the block runs; several in one folder share `dev.json`."""

    def __init__(self, directory: Path, servers: DevServers) -> None:
        self._directory, self._lock = directory, FileLock(_lock(directory))
        if not self._lock.lock(_TIMEOUT, shared=True):
            raise StackError(f"Another process holds the lock {_lock(directory)} and does not release it.")
        write_atomically(_dev_file(directory), asdict(servers))

    def __enter__(self) -> Announcement:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        with FileLock(_lock(self._directory)) as probe:
            if probe.try_lock():
                _dev_file(self._directory).unlink(missing_ok=True)


def _is_held(directory: Path) -> bool:
    with FileLock(_lock(directory)) as probe:
        return not probe.try_lock()


def _dev_file(directory: Path) -> Path:
    return directory / "dev.json"


def _lock(directory: Path) -> Path:
    return directory / "dev.lock"


def is_of_stack(directory: Path, url: str) -> bool:
    """By the folder of the database's socket, or by the password of the broker."""
    parts = urlsplit(url)
    hosts = parse_qs(parts.query).get("host")
    if hosts:
        return hosts[0] in {str(socket_directory(data.resolve())) for data in directory.glob("pg*")}
    return parts.password is not None and parts.password == _broker_password(directory)


def is_running(directory: Path) -> bool:
    lock = StackPaths(directory).supervisor_lock
    return lock.exists() and is_locked(lock)


def _broker_password(directory: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((directory / "broker.json").read_text())["password"])
    return None
