"""Hides secrets in values of users, and shortens large values. Every answer that contains values of users goes through
this module, except values that an admin reveals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rival_workers.dashboard.problem_json import pointer
from rival_workers.runtime.logs.redaction import HIDDEN, Redaction

#: Characters of JSON above which an answer has only the beginning of a value.
LARGE = 32_768
PREVIEW = 2_000
#: Characters of a value in a row of a list.
LINE = 200


def secret_names(schema: Any) -> set[str]:
    """The properties that a JSON Schema marks as secret: `writeOnly`, or the format `password`."""
    return set(_secret_names(schema))


def _secret_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _secret_names(one)
    if not isinstance(schema, dict):
        return
    for name, its in _properties(schema):
        if _is_secret(its):
            yield name
    for inner in schema.values():
        yield from _secret_names(inner)


def _properties(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    found = schema.get("properties")
    return list(found.items()) if isinstance(found, dict) else []


def _is_secret(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return True
    return any(_is_secret(one) for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key) or ())


class Veil:
    """Hides values of fields whose names are common for secrets, in `RIVAL_REDACT`, or marked in a schema."""

    def __init__(self, words: Iterable[str] = (), exact: Iterable[str] = ()) -> None:
        self._words = list(words)
        self._redaction = Redaction(self._words)
        self._exact = frozenset(exact)

    def also(self, exact: Iterable[str]) -> Veil:
        names = frozenset(exact)
        return self if names <= self._exact else Veil(self._words, self._exact | names)

    def hidden(self, value: Any) -> Any:
        return self._redaction.value("", self._without_exact(value))

    def within(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Hides in values that consist of others. The names are Rival's own, such as `key` and
        `idempotency_key`: they do not mean a secret."""
        return {name: self.hidden(its) if isinstance(its, dict | list) else its for name, its in named.items()}

    def text(self, text: str) -> str:
        return self._redaction.text(text)

    def _without_exact(self, value: Any) -> Any:
        if not self._exact:
            return value
        if isinstance(value, dict):
            return {name: HIDDEN if name in self._exact else self._without_exact(its) for name, its in value.items()}
        return [self._without_exact(one) for one in value] if isinstance(value, list) else value

    def value(self, value: Any) -> dict[str, Any]:
        """A Value of the API."""
        shown = self.hidden(value)
        text = compact(shown)
        is_large = len(text) > LARGE
        return {
            "value": None if is_large else shown,
            "size": len(text),
            "preview": text[:PREVIEW] if is_large else None,
            "redacted": list(_differences(value, shown))[:200],
        }

    def still_hidden(self, value: Any) -> list[str]:
        """JSON pointers of what this hides and what is hidden: it was copied from a page, and is not a value."""
        return ["/" + pointer(path) for path in _stars(value) if path and self._hides(str(path[-1]))]

    def restored(self, given: Any, stored: Any) -> Any:
        """A value that was edited as this shows `stored`, with what was hidden in the parts that are as they were. In a
        list that has changed nothing is put back: its items may have other places now."""
        if given == self.hidden(stored):
            return stored
        if not (isinstance(given, dict) and isinstance(stored, dict)):
            return given
        return {name: self._restored_field(name, its, stored) for name, its in given.items()}

    def _restored_field(self, name: str, given: Any, stored: dict[str, Any]) -> Any:
        if name not in stored:
            return given
        if given == self.hidden({name: stored[name]})[name]:
            return stored[name]
        return self.restored(given, stored[name])

    def hides_any(self, value: Any) -> str | None:
        """Returns a name in the value, at any depth, that stands for a secret; None if there is none."""
        if isinstance(value, dict):
            return next((name for name in value if self._hides(name)), None) or self.hides_any([*value.values()])
        found = (self.hides_any(one) for one in value) if isinstance(value, list) else iter(())
        return next((name for name in found if name is not None), None)

    def _hides(self, name: str) -> bool:
        return bool(self.hidden({name: "x"})[name] != "x")

    def line(self, value: Any, most: int = LINE) -> str | None:
        """The beginning of a value."""
        return None if value is None else compact(self.hidden(value))[:most]

    def beginning(self, text: str | None, is_whole: bool, most: int = LINE) -> str | None:
        """The same of JSON text of which only the beginning was read: it ends before the first secret name."""
        if text is None:
            return None
        if is_whole:
            try:
                return self.line(json.loads(text), most)
            except ValueError:
                return self.text(text)[:most]
        found = self._secret_name.search(text)
        return (text if found is None else text[: found.start()])[:most]

    @property
    def _secret_name(self) -> re.Pattern[str]:
        names = [re.escape(json.dumps(name)) for name in self._exact]
        return re.compile("|".join([self._redaction.names, *names]), re.IGNORECASE)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _differences(value: Any, shown: Any, path: tuple[Any, ...] = ()) -> Iterator[str]:
    """JSON pointers of what was hidden."""
    if isinstance(value, dict) and isinstance(shown, dict):
        for name, its in value.items():
            yield from _differences(its, shown[name], (*path, name))
    elif isinstance(value, list) and isinstance(shown, list):
        for index, (one, its) in enumerate(zip(value, shown, strict=True)):
            yield from _differences(one, its, (*path, index))
    elif value is not shown and value != shown:
        yield "/" + pointer(path) if path else ""


def at_pointer(value: Any, where: str) -> Any:
    """The value at a JSON pointer; LookupError when there is none."""
    for part in where.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def _stars(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to the places where a value is the mask of a hidden one."""
    if value == HIDDEN:
        yield path
    elif isinstance(value, dict):
        for name, its in value.items():
            yield from _stars(its, (*path, name))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _stars(one, (*path, index))
