"""Users and bearer tokens of a dashboard: a TOML file that people can read, with hashes only."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rival_client.errors import ConfigurationError
from rival_workers.dashboard.roles import ROLES, Identity, Role

_COST = {"n": 2**14, "r": 8, "p": 1}


@dataclass(frozen=True)
class Content:
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)


class Users:
    """Reads the file again when it has changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._read: tuple[int, Content] | None = None

    @property
    def names(self) -> list[str]:
        return sorted(self._content().users)

    def named(self, name: str) -> Identity | None:
        found = self._content().users.get(name)
        return None if found is None else Identity(name, found["role"])

    def with_password(self, name: str, password: str) -> Identity | None:
        found = self._content().users.get(name)
        # Also for an unknown name, so that the time does not show which names exist.
        salt = bytes.fromhex(found["salt"]) if found else b"\x00" * 16
        computed = _hashed(password, salt)
        if found is None or not hmac.compare_digest(computed, found["hash"]):
            return None
        return Identity(name, found["role"])

    def password_hash(self, name: str) -> str:
        return str(self._content().users.get(name, {}).get("hash", ""))

    def of_bearer(self, token: str, now: float) -> Identity | None:
        found = self._content().tokens.get(_token_hash(token))
        if found is None or (found.get("expires") and found["expires"] < now):
            return None
        return Identity(found["name"], found["role"], is_script=True)

    # -- changes ------------------------------------------------------------------------------------------

    def add(self, name: str, password: str, role: Role) -> None:
        _check_name(name, "user")
        if len(password) < 8:
            raise ConfigurationError("The password is too short: give at least 8 characters.")
        salt = secrets.token_bytes(16)
        content = self._content()
        content.users[name] = {"role": _role(role), "salt": salt.hex(), "hash": _hashed(password, salt)}
        self._write(content)

    def remove(self, name: str) -> bool:
        content = self._content()
        if content.users.pop(name, None) is None:
            return False
        self._write(content)
        return True

    def add_token(self, name: str, role: Role, expires: float | None) -> str:
        """The token, which is stored as a hash: it cannot be shown again."""
        _check_name(name, "token")
        token = "rvd_" + secrets.token_urlsafe(30)
        content = self._content()
        content.tokens[_token_hash(token)] = {"name": name, "role": _role(role), "expires": expires or 0}
        self._write(content)
        return token

    def _content(self) -> Content:
        with self._lock:
            try:
                changed = self._file.stat().st_mtime_ns
            except FileNotFoundError:
                return Content()
            if self._read is None or self._read[0] != changed:
                self._read = (changed, _parsed(self._file))
            found = self._read[1]
            return Content(dict(found.users), dict(found.tokens))

    def _write(self, content: Content) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(_as_toml(content))
        part.replace(self._file)


def _parsed(file: Path) -> Content:
    try:
        found = tomllib.loads(file.read_text())
        content = Content(dict(found.get("users", {})), dict(found.get("tokens", {})))
        for one in (*content.users.values(), *content.tokens.values()):
            _role(one["role"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}. Repair it, or delete it and add users again."
        ) from error
    return content


def _check_name(name: str, whose: str) -> None:
    """The audit and the histories of runs have it."""
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise ConfigurationError(f"{name!r} is not a name of a {whose}: give 1 to 200 printable characters.")


def _role(role: object) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise ConfigurationError(f"{role!r} is not a role: give one of {', '.join(ROLES)}.")


def _hashed(password: str, salt: bytes) -> str:
    return hashlib.scrypt(password.encode(), salt=salt, **_COST).hex()


def _token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _as_toml(content: Content) -> str:
    lines = ["# Made by `rival dashboard user` and `rival dashboard token`. It has hashes, not passwords."]
    for table, entries in (("users", content.users), ("tokens", content.tokens)):
        for name, fields in entries.items():
            lines += ["", f"[{table}.{json.dumps(name, ensure_ascii=False)}]"]
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return "\n".join(lines) + "\n"
