"""Logins: the printed token, users with passwords, bearer tokens, a trusted proxy, or the application that mounts the
dashboard.

A session is a signed cookie; the key is random and made at the first start. The role of a user is looked up at each
request, so a removed user loses access at once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rival_workers.dashboard.forwarded import is_within
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.roles import Identity, Role
from rival_workers.dashboard.users import Users

#: Seconds that a session lasts.
LIFETIME = 12 * 3600
#: The name of the person who has opened the printed link.
OWNER = "owner"
#: The header in which the proxy sends the shared secret.
SECRET_HEADER = "x-rival-proxy-secret"
Authorize = Callable[[Mapping[str, Any]], Identity | None]


@dataclass(frozen=True)
class Proxy:
    """A proxy that has checked the user: only from these addresses, and only with the shared secret."""

    networks: tuple[str, ...]
    secret: str
    user_header: str = "x-forwarded-email"
    groups_header: str | None = None
    #: Group -> role, by equality. Without groups every user of the proxy has `role`.
    roles: Mapping[str, Role] = field(default_factory=dict)
    role: Role = "viewer"

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that only the proxy may send."""
        return (self.user_header, *([self.groups_header] if self.groups_header else []), SECRET_HEADER)

    def identify(self, headers: Mapping[str, str], address: str) -> Identity | None:
        name = headers.get(self.user_header)
        if not name or not is_within(address, self.networks) or not same(headers.get(SECRET_HEADER, ""), self.secret):
            return None
        role = self.role if self.groups_header is None else self._role(headers.get(self.groups_header, ""))
        return None if role is None else Identity(name, role)

    def _role(self, groups: str) -> Role | None:
        found = [self.roles[one] for one in map(str.strip, groups.split(",")) if one in self.roles]
        return max(found, key=("viewer", "operator", "admin").index, default=None)


class Sessions:
    def __init__(
        self,
        key: bytes,
        *,
        token: str | None = None,
        users: Users | None = None,
        proxy: Proxy | None = None,
        authorize: Authorize | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key, self._token, self._users, self._clock = key, token, users, clock
        self._proxy, self._authorize = proxy, authorize
        self._failures = Failures(clock)
        self.cookie = f"rival_session_{hashlib.sha256(key).hexdigest()[:8]}"

    @property
    def ways(self) -> list[str]:
        """How a person can log in."""
        has_users = self._users is not None and bool(self._users.names)
        return [way for way, is_open in (("token", self._token), ("password", has_users)) if is_open]

    @property
    def takes_bearers(self) -> bool:
        """False: the application that mounts the dashboard interprets the header."""
        return self._authorize is None

    def identify(
        self, scope: Mapping[str, Any], headers: Mapping[str, str], cookies: Mapping[str, str]
    ) -> Identity | None:
        """The identity of a request; None: it has none."""
        if self._authorize is not None:
            return self._authorize(scope)
        bearer = bearer_of(headers)
        if bearer is not None:
            return self._users.of_bearer(bearer, self._clock()) if self._users else None
        if self._proxy is not None:
            client = scope.get("client") or ("", 0)
            return self._proxy.identify(headers, client[0])
        return self._of_cookie(cookies.get(self.cookie, ""))

    def log_in(self, address: str, token: str | None, name: str | None, password: str | None) -> tuple[Identity, str]:
        """The identity, and the cookie of its session."""
        self._failures.begin(address, name)
        found = self._with_token(token) if token is not None else self._with_password(name, password)
        if found is None:
            raise Refused(401, "LoginNeeded", "This login is not valid. Use the link that `rival dashboard` prints.")
        self._failures.clear(address, name)
        content = {"n": found.name, "t": token is not None, "e": self._clock() + LIFETIME}
        return found, self.signed(content if token is not None else {**content, "p": self._password_mark(found.name)})

    def _with_token(self, token: str) -> Identity | None:
        is_right = self._token is not None and same(token, self._token)
        return Identity(OWNER, "admin") if is_right else None

    def _with_password(self, name: str | None, password: str | None) -> Identity | None:
        if self._users is None or not name or not password:
            return None
        return self._users.with_password(name, password)

    # -- signed texts -------------------------------------------------------------------------------------

    def _of_cookie(self, cookie: str) -> Identity | None:
        content = self.unsigned(cookie)
        if content is None or content.get("e", 0) < self._clock():
            return None
        if content.get("t"):
            return Identity(OWNER, "admin") if self._token is not None else None
        name = str(content.get("n"))
        is_current = same(str(content.get("p")), self._password_mark(name))
        return self._users.named(name) if self._users and is_current else None

    def _password_mark(self, name: str) -> str:
        """Changes with the password, which ends the sessions of the one before."""
        return self._mark(f"password {self._users.password_hash(name) if self._users else ''}".encode())

    def signed(self, content: dict[str, Any]) -> str:
        text = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=")
        return f"{text.decode()}.{self._mark(text)}"

    def unsigned(self, text: str) -> dict[str, Any] | None:
        """The content, if this process or another one with the same key has signed it."""
        content, _, mark = text.partition(".")
        raw = content.encode("ascii", "replace")
        if not same(mark, self._mark(raw)):
            return None
        try:
            found = json.loads(base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)))
        except (ValueError, binascii.Error):
            return None
        return found if isinstance(found, dict) else None

    def _mark(self, content: bytes) -> str:
        return hmac.new(self._key, content, hashlib.sha256).hexdigest()


def bearer_of(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("utf-8", "surrogatepass"))


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Failures:
    """Makes repeated failures of one name or one address wait, twice as long each time."""

    FREE = 5
    LONGEST = 300.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._until: dict[tuple[str, str], tuple[int, float]] = {}

    def begin(self, address: str, name: str | None) -> None:
        """Before the password is looked at: attempts that are made at the same time must wait, too."""
        with self._lock:
            self._refuse_early(address, name)
            if len(self._until) > 10_000:
                self._until.clear()
            for one in _counted(address, name):
                count = self._until.get(one, (0, 0.0))[0] + 1
                pause = min(self.LONGEST, 2.0 ** (count - self.FREE)) if count >= self.FREE else 0.0
                self._until[one] = (count, self._clock() + pause)

    def _refuse_early(self, address: str, name: str | None) -> None:
        known = (self._until.get(one, (0, 0.0)) for one in _counted(address, name))
        wait = max((until - self._clock() for _, until in known), default=0.0)
        if wait > 0:
            after = {"retry-after": str(int(wait) + 1)}
            raise Refused(429, "TooManyLogins", f"Too many failed logins: try again in {wait:.0f} s.", headers=after)

    def clear(self, address: str, name: str | None) -> None:
        with self._lock:
            for one in _counted(address, name):
                self._until.pop(one, None)


def _counted(address: str, name: str | None) -> list[tuple[str, str]]:
    """Addresses and names are counted separately. A login by token has no name."""
    return [("address", address), *([] if name is None else [("name", name)])]
