"""Directories of one user inside directories that all users can write to: created, or checked before use."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from rival_workers.dev.errors import StackError

# sun_path has 104 bytes on macOS and 108 on Linux, the closing NUL included.
LONGEST_SOCKET_PATH = 103
SOCKET_NAME = ".s.PGSQL.5432"


def private_directory(path: Path, uid: int, gid: int, mode: int = 0o700) -> Path:
    """Creates `path`, or refuses one that another user has created."""
    try:
        path.mkdir(mode=0o700)
        os.chown(path, uid, gid)
        path.chmod(mode)
    except FileExistsError:
        _check_owner(path, uid)
        path.chmod(mode)
    return path


def lasting_directory(label: str, owner: str) -> Path:
    """A path that survives a reboot if the system has such a directory; derived from `label`, so it is found again."""
    parent = Path("/var/tmp")
    if not os.access(parent, os.W_OK | os.X_OK):
        parent = Path(tempfile.gettempdir())
    return parent / f"rival-{owner}-{_digest(label)}"


def socket_directory(data: Path) -> Path:
    """Next to the data if the path is short and has no special characters, else in the temporary directory."""
    beside = data.parent / "run"
    if _fits(beside):
        return beside
    name = f"rival-{os.geteuid()}-{_digest(str(data))}"
    shortest = Path(tempfile.gettempdir()) / name
    return shortest if _fits(shortest) else Path("/tmp") / name


def _fits(folder: Path) -> bool:
    # A comma or a colon has a meaning in libpq's and SQLAlchemy's host lists, a quote in Postgres' own.
    plain = re.fullmatch(r"[A-Za-z0-9_./-]+", str(folder)) is not None
    return plain and len(os.fsencode(folder / SOCKET_NAME)) <= LONGEST_SOCKET_PATH


def _check_owner(path: Path, uid: int) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        raise StackError(f"{path} exists and is not a directory of user {uid}: remove it, or set TMPDIR elsewhere.")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
