"""Makes one HTML file that needs no server: modules, styles and the values that they show are inside. Its content
security policy allows its own script and styles, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from html import escape
from typing import Any

from rival_workers.dashboard.static_files import DIRECTORY, bare_file
from rival_workers.dashboard.static_files.joined_modules import alone

#: The module that shows the values of such a file.
ENTRY = "file.js"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; \
img-src data:; style-src '{style_hash}'; script-src '{script_hash}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title><style>{style}</style></head><body>
<div id="app">{text}</div>
<script type="application/json" id="run">{values}</script>
<script type="module">{script}</script></body></html>
"""


def one_file(title: str, text: str, values: Any) -> str:
    """`text`: markup for readers whose program runs no scripts."""
    style, script = _parts()
    return _PAGE.format(
        title=escape(title),
        text=text,
        # Text of users must not end the element that it is in.
        values=json.dumps(values, ensure_ascii=False).replace("<", "\\u003c"),
        style=style,
        script=script,
        style_hash=_hash_of(style),
        script_hash=_hash_of(script),
    )


@lru_cache(1)
def _parts() -> tuple[str, str]:
    sources = {path.relative_to(DIRECTORY).as_posix(): path.read_bytes() for path in sorted(DIRECTORY.rglob("*.js"))}
    bare = {name: bare_file(name, content).decode() for name, content in sources.items()}
    style = bare_file("rival.css", (DIRECTORY / "rival.css").read_bytes()).decode()
    return style, alone(bare, ENTRY)


def _hash_of(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
