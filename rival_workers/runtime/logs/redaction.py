"""Hides secrets in log entries: by the name of a field at any depth, and by `name=value` within a text.

It prefers to hide too much: a hidden value can be logged under another name, a written secret cannot be removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

HIDDEN = "***"
WORDS = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "cookie", "authorization"),
    *("api_key", "access_key", "private_key"),
)
#: A value within a text: quoted, or up to the next space or separator.
_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\s,;&"')\]}]+)"""
_URL_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s/@]+(?=@)")
#: What follows "Bearer" is hidden, unless it is a word such as "token".
_BEARER = re.compile(r"\b(bearer)\s{1,3}(?!(?:tokens?|auth\w*)\b)[\w.~+/=-]{3,}", re.IGNORECASE)
#: "Basic" and "token" are also words of prose: a secret has a digit, padding, or a capital letter after a small one.
_CREDENTIAL = re.compile(
    r"\b(basic|token)\s{1,3}(?=[\w.~+/-]{0,200}(?:\d|=|(?-i:[a-z][A-Z])))[\w.~+/=-]{6,}", re.IGNORECASE
)
#: A number with this word in its name is a count, not a secret: `prompt_tokens=120`.
_COUNTED = "token"


class Redaction:
    """`more`: further parts of secret names. Case and punctuation are ignored: `X-API-Key` contains `api_key`."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        words = [*WORDS, *(word.strip() for word in more if _letters(word))]
        self._words = tuple(_letters(word) for word in words)
        named = "|".join(r"[\W_]?".join(map(re.escape, re.findall(r"[^\W_]+", word))) for word in words)
        #: A pattern of the secret words.
        self.names = named
        # password=hunter2, "password": "hunter2", Authorization: Bearer hunter2. A plain colon is too common in prose.
        # Bounded repeats only, so that no message makes the match slow.
        self._assigned = re.compile(
            rf"""((?:{named})[\w.-]{{0,40}}(?:\s?=\s?|["']\s?[:=]\s?))({_VALUE})|(authorization:\s?)([^\s,;"']+.*)""",
            re.IGNORECASE,
        )

    @classmethod
    def of(cls, words: str) -> Redaction:
        """From the setting `redact`: words separated by commas."""
        return cls(words.split(","))

    def value(self, key: object, value: Any) -> Any:
        """A JSON value with *** instead of each value, at any depth, whose name contains a secret word."""
        if self._is_secret(str(key), value):
            return HIDDEN
        if isinstance(value, dict):
            return {inner: self.value(inner, its) for inner, its in value.items()}
        if isinstance(value, list | tuple):
            return [self.value("", item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        if "=" in text or ":" in text:
            text = _URL_PASSWORD.sub(rf"\1{HIDDEN}", self._assigned.sub(_hide, text))
        if " " not in text:
            return text
        return _CREDENTIAL.sub(rf"\1 {HIDDEN}", _BEARER.sub(rf"\1 {HIDDEN}", text))

    def _is_secret(self, key: str, value: Any) -> bool:
        """None and booleans are not hidden: they only say whether there is a secret."""
        if value is None or isinstance(value, bool):
            return False
        letters, counts = _letters(key), isinstance(value, int | float)
        return any(word in letters for word in self._words if not (counts and word == _COUNTED))


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _hide(found: re.Match[str]) -> str:
    if found[3] is not None:
        return found[3] + HIDDEN
    if found[2].isdigit() and _COUNTED in found[1].lower():
        return found[0]
    quote = found[2][0] if found[2][0] in "\"'" else ""
    return f"{found[1]}{quote}{HIDDEN}{quote}"


#: The redaction without the words of the setting `redact`.
DEFAULT = Redaction()
