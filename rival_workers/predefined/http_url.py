"""A URL with templates in it: what is filled in is data. It cannot change the host, nor where the path leads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from rival_workers.errors import StepError
from rival_workers.predefined.references import Reference, as_text
from rival_workers.predefined.templates import Part, Text, parse_function, parse_text

_BEGINNING = re.compile(r"https?://[^/?#{}\s]+(?P<path>[/?#])?", re.IGNORECASE)
_DOTS = (".", "..")


@dataclass(frozen=True)
class UrlTemplate:
    text: Text

    @property
    def names(self) -> frozenset[str]:
        return self.text.names

    def fill(self, ctx: Any) -> str:
        url = ""
        for piece in self.text.pieces:
            url += piece if isinstance(piece, str) else self._value(piece, ctx, in_path="?" not in url)
        if self.names and any(part in _DOTS for part in re.split(r"[/\\]", unquote(url.partition("?")[0]))):
            raise StepError("the URL's path, filled in, has a . or .. in it: a value must not lead elsewhere")
        return url

    def _value(self, reference: Reference, ctx: Any, in_path: bool) -> str:
        value = as_text(reference, reference.resolve(ctx))
        if in_path and not value:
            raise StepError(f"template {{{reference.text}}} is empty: the URL would be another one")
        return quote(value, safe="")


def parse_url(url: Any, problems: list[str]) -> Part:
    if callable(url):
        return parse_function(url, "url", problems)
    text = parse_text(url, "url", problems) if isinstance(url, str) else Text(())
    first = text.pieces[0] if text.pieces else ""
    begins = _BEGINNING.match(first) if isinstance(first, str) else None
    if begins is None or (len(text.pieces) > 1 and not begins["path"]):
        problems.append(
            "url: give http:// or https://, a host and a path; templates only after the host. "
            "Where the host itself must vary, give a function: url=lambda input: …"
        )
    return UrlTemplate(text)
