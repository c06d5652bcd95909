"""Removes secrets from texts that are shown: passwords in URLs and in key=value connection strings."""

from __future__ import annotations

import re
from urllib.parse import unquote

_HIDDEN = "***"
#: Names of connection parameters whose values are secret: password, sslpassword, ssl_keyfile_password, secret_key, …
_SECRET = re.compile(r"pass(?!file)|pwd|secret|token|credential|api_?key|access_?key|scram_\w+_key", re.IGNORECASE)
#: kombu separates the brokers of a failover list with semicolons; a password may have one, too.
_NEXT_BROKER = re.compile(r";(?=[\w+.-]+://)")
_QUERY_PARAMETER = re.compile(r"([?&])([^=&?]+)=([^&]*)")
_KEY_AND_VALUE = re.compile(r"(?<![\w%])([\w%]+)(\s*=\s*)('(?:[^'\\]|\\.)*(?:'|$)|(?:\\.|[^\s'\\])+)")
#: Parsers split a URL at these characters, and quote the part that is invalid.
_DELIMITERS = re.compile(r"[/?#@:;&=\s\[\]]")
#: Shorter parts of a password say nothing, and would cut up the rest of a text.
_SHORTEST = 3


def masked(url: object) -> str:
    """A URL, a failover list of them or a key=value connection string without its secrets."""
    if not url:
        return "(not set)"
    if not isinstance(url, str):
        return f"({type(url).__name__})"
    return ";".join(_masked(one) for one in _NEXT_BROKER.split(url))


def _masked(url: str) -> str:
    url = _QUERY_PARAMETER.sub(_without_query_value, url)
    if "://" not in url:
        url = _KEY_AND_VALUE.sub(_without_value, url)
    # The last @ of all: a password may hold any sign, also those that end an authority.
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, user, password = _user_info(head)
    return f"{scheme}{user}{'' if password is None else f':{_HIDDEN}'}@{tail}"


def _user_info(head: str) -> tuple[str, str, str | None]:
    """Scheme, user and password of what stands before the @; the scheme may be missing."""
    before, sep, after = head.partition("://")
    user, colon, password = (after if sep else before).partition(":")
    return before + sep if sep else "", user, password if colon else None


def _without_value(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{_HIDDEN}" if _is_secret(found[1]) else found[0]


def _without_query_value(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={_HIDDEN}" if _is_secret(found[2]) else found[0]


def _is_secret(name: str) -> bool:
    return _SECRET.search(unquote(name)) is not None


def without_secrets(text: str, url: object) -> str:
    """A driver's text about a URL: it may quote the URL, or parts of a password that it takes for something else."""
    if not isinstance(url, str):
        return text
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def _secrets(url: str) -> set[str]:
    values = [value for one in _NEXT_BROKER.split(url) for value in _values(one)]
    whole = {form for value in values for form in (value, unquote(value))}
    parts = {part for value in whole for part in _DELIMITERS.split(value)}
    return {secret for secret in whole | parts if len(secret) >= _SHORTEST}


def _values(url: str) -> list[str]:
    found = [match[3].strip("'") for match in _KEY_AND_VALUE.finditer(url) if _is_secret(match[1])]
    found += [match[3] for match in _QUERY_PARAMETER.finditer(url) if _is_secret(match[2])]
    head, at, _ = url.rpartition("@")
    password = _user_info(head)[2] if at else None
    return found if password is None else [*found, password]


#: What SQLAlchemy adds to the text of an error, up to its link or to the next exception of a traceback. A traceback of
#: an exception group has bars in front of its lines.
_SQL = re.compile(
    r"\n[ |]*\[SQL: .*?(?:\n[ |]*\(Background on this error at: \S+\)|(?=\n\n[ |]*(?:The above|During))|\Z)", re.DOTALL
)
_PASSWORD_IN_TEXT = re.compile(r"\b([\w+.-]{2,30}://[^\s:/@'\"]{0,200}):(?!\d+/)[^\s@'\"]{1,400}@(?=[\w\[/])")


def storable_error(text: str) -> str:
    """The text of any exception, or its traceback, without SQL and its values, and without passwords in URLs."""
    return _PASSWORD_IN_TEXT.sub(rf"\1:{_HIDDEN}@", _SQL.sub("", text))
