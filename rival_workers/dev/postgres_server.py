"""A real Postgres for development: on a unix socket that only its owner can reach, without a password, fsync on.

Postgres refuses root, so root starts it as another user: in a user namespace if the kernel allows that, else as an
existing user. Creates no system user and opens no existing directory to others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO
from urllib.parse import quote

from rival_workers.dev.binaries import PostgresBinaries, copy_of, find_postgres
from rival_workers.dev.errors import StackError
from rival_workers.dev.private_directories import SOCKET_NAME, lasting_directory, private_directory, socket_directory
from rival_workers.dev.processes import processes_in
from rival_workers.dev.server import Server
from rival_workers.dev.spawn import Launch, spawn, stay_same_user

CLONE_NEWUSER = 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)
USER = "rival"
DATABASE = "rival"
INIT_OPTIONS = ("--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C", "--no-instructions")
STATUS_LINE = 7  # of postmaster.pid, counted from 0
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "jit": "off",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %d ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(Server):
    """Data in `<directory>/pg<major version>`; the database and the superuser are both called `rival`."""

    name = "postgres"
    stop_signals = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))  # fast, then immediate shutdown

    def __init__(self, directory: Path | str, identity: Identity | None = None) -> None:
        super().__init__(directory)
        self._given_identity = identity

    @property
    def url(self) -> str:
        # Without a port libpq would take it from PGPORT.
        host = quote(str(self.socket_directory), safe="")
        return f"postgresql://{USER}@/{DATABASE}?host={host}&port=5432"

    @cached_property
    def socket_directory(self) -> Path:
        return socket_directory(self.data)

    @cached_property
    def data(self) -> Path:
        return self._home.resolve() / f"pg{self._found.major_version()}"

    def prepare(self) -> None:
        private_directory(self.socket_directory, self._identity.uid, self._identity.gid)
        self._remove_orphaned_data()
        if not (self.data / "PG_VERSION").exists():
            self._create_data()
        self._remove_stale_locks()

    def launch(self, log: IO[bytes]) -> Launch:
        return Launch(
            [str(self._binaries.postgres), "-D", str(self.data), *self._settings()],
            log,
            cwd=self.data,
            become=self._identity.become,
            # Immediate shutdown: the server ends its children, including busy ones; with SIGKILL they would remain.
            dying_signal=signal.SIGQUIT,
        )

    def leftovers(self) -> list[int]:
        return processes_in(self.data, "postgres")

    def answers(self) -> bool:
        """Reads the status like pg_ctl: a connection would need the import of a driver, most of a cold start."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"

    @cached_property
    def _found(self) -> PostgresBinaries:
        return find_postgres()

    @cached_property
    def _identity(self) -> Identity:
        return self._given_identity or choose_identity(self._found)

    @cached_property
    def _binaries(self) -> PostgresBinaries:
        return self._identity.reachable(self._found)

    @cached_property
    def _home(self) -> Path:
        return self._identity.data_parent(self.directory)

    def _create_data(self) -> None:
        """Under another name until it is complete, so that an interrupted initdb leaves no data directory."""
        unfinished = self.data.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        private_directory(unfinished, self._identity.uid, self._identity.gid)
        self._run(unfinished, [str(self._binaries.initdb), "-D", str(unfinished), *INIT_OPTIONS])
        single_user = ["--single", "-c", "exit_on_error=on", "-D", str(unfinished), "postgres"]
        self._run(unfinished, [str(self._binaries.postgres), *single_user], f'CREATE DATABASE "{DATABASE}"\n')
        unfinished.rename(self.data)
        self._link_data()

    def _run(self, folder: Path, command: list[str], stdin: str = "") -> None:
        become = self._identity.become
        with self._open_log() as log:
            made = spawn(Launch(command, log, cwd=folder, become=become, stdin=stdin.encode()))
        if made.wait() != 0:
            raise self.failed(f"could not create its data directory ({command[0]})")

    def _link_data(self) -> None:
        """A link to data in another directory: it shows where they are, and removing it removes them."""
        if self._identity.is_another_user:
            (self.directory / self.data.name).symlink_to(self.data)

    def _remove_orphaned_data(self) -> None:
        """A user who removes the directory, and with it the link, expects an empty database next time."""
        if self._identity.is_another_user and not (self.directory / self.data.name).is_symlink():
            shutil.rmtree(self.data, ignore_errors=True)

    def _remove_stale_locks(self) -> None:
        """Safe because this process holds the lock and nothing runs in the data directory. Postgres would refuse to
        start if the pid in the file now belongs to another process or a zombie, as happens in containers."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.socket_directory / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)

    def _settings(self) -> list[str]:
        settings = SETTINGS | {"unix_socket_directories": str(self.socket_directory)}
        if self._binaries.has_library("pg_stat_statements"):
            settings["shared_preload_libraries"] = "pg_stat_statements"
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


# -- the user that it runs as -----------------------------------------------------------------------------


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
        return _ordinary_user()
    inside = _namespace_user()
    if sys.platform == "linux" and _runs(binaries.postgres, inside.become):
        return inside
    return another_user() if os.geteuid() == 0 else _ordinary_user()


def _ordinary_user() -> Identity:
    return Identity(stay_same_user, os.geteuid(), os.getegid())


def _namespace_user() -> Identity:
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
