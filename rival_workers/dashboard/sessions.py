"""Logins: the printed token, users with passwords, bearer tokens, a trusted proxy, or the application around us.

A session is a signed cookie; the key is random and made at the first start. What a user may do is looked up at each
request, so a removed user is out at once.
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
#: With this header a proxy shows that it is the one.
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
        """Those that only the proxy may send."""
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

    def identify(self, scope: Mapping[str, Any], headers: Mapping[str, str], cookies: Mapping[str, str]) -> Any:
        """The identity of a request; None: it has none."""
        if self._authorize is not None:
            return self._authorize(scope)
        bearer = headers.get("authorization", "")
        if bearer.lower().startswith("bearer "):
            return self._users.of_bearer(bearer[7:].strip(), self._clock()) if self._users else None
        if self._proxy is not None:
            client = scope.get("client") or ("", 0)
            return self._proxy.identify(headers, client[0])
        return self._of_cookie(cookies.get(self.cookie, ""))

    def log_in(self, address: str, token: str | None, name: str | None, password: str | None) -> tuple[Identity, str]:
        """The identity, and the cookie of its session."""
        self._failures.check(address, name)
        found = self._with_token(token) if token is not None else self._with_password(name, password)
        if found is None:
            self._failures.add(address, name)
            raise Refused(401, "LoginNeeded", "This login is not valid. Use the link that `rival dashboard` prints.")
        self._failures.clear(address, name)
        return found, self._signed({"n": found.name, "t": token is not None, "e": self._clock() + LIFETIME})

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
        return self._users.named(str(content.get("n"))) if self._users else None

    def _signed(self, content: dict[str, Any]) -> str:
        return self.signed(content)

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
        self._until: dict[str, tuple[int, float]] = {}

    def check(self, *who: str | None) -> None:
        wait = max((self._until.get(one or "", (0, 0.0))[1] - self._clock() for one in who), default=0.0)
        if wait > 0:
            after = {"retry-after": str(int(wait) + 1)}
            raise Refused(429, "TooManyLogins", f"Too many failed logins: try again in {wait:.0f} s.", headers=after)

    def add(self, *who: str | None) -> None:
        with self._lock:
            if len(self._until) > 10_000:
                self._until.clear()
            for one in who:
                count = self._until.get(one or "", (0, 0.0))[0] + 1
                pause = min(self.LONGEST, 2.0 ** (count - self.FREE)) if count >= self.FREE else 0.0
                self._until[one or ""] = (count, self._clock() + pause)

    def clear(self, *who: str | None) -> None:
        with self._lock:
            for one in who:
                self._until.pop(one or "", None)
