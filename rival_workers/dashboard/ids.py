"""Names in paths of URLs: all but `A-Za-z0-9._-` is written as `~XX`, since proxies decode `%2F` and clean up `..`."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9._-]")
#: Resources beside `/runs/{run_id}`.
_RESERVED = frozenset({"counts", "export"})
_WRITTEN = re.compile(r"(?:[A-Za-z0-9._-]|~[0-9A-F]{2})+", re.ASCII)


def in_path(name: str) -> str:
    """The name as a part of a path. A surrogate, which no id contains, is written as it is stored."""
    written = "".join(_written(byte) for byte in name.encode("utf-8", "surrogatepass"))
    is_taken = written in _RESERVED or (written.strip(".") == "" and written)
    return f"~{ord(written[0]):02X}{written[1:]}" if is_taken else written


def _written(byte: int) -> str:
    sign = chr(byte)
    return sign if byte < 128 and _PLAIN.match(sign) else f"~{byte:02X}"


def from_path(part: str) -> str | None:
    """The name; None if it is not one that `in_path` writes."""
    if not _WRITTEN.fullmatch(part):
        return None
    raw = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
