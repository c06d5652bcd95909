"""The paths of the embedded stack, in the folder of its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StackPaths:
    """The paths of the files of one stack."""

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
    def state(self) -> Path:
        return self.directory / "stack.json"

    def prepare(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = self.directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")  # data and a password must not get into a repository
