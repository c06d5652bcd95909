"""What a button does, as text: the same for a shell, for Python and for curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

Commands = dict[str, str]


def commands(
    base: str, path: str, shell: Sequence[str], python: str, body: Mapping[str, Any], method: str = "POST"
) -> Commands:
    """`shell`: the words of the command; `path`: below the API. Values are those that were given, so nothing that was
    hidden can be in them."""
    call = shlex.join([method, f"{base}api/v1/{path}", "-H", "Content-Type: application/json"])
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    curl = f'curl -X {call} -H "Authorization: Bearer $RIVAL_TOKEN" -d {data}'
    return {"shell": shlex.join(shell), "python": python, "curl": curl}


def call_text(method: str, /, *args: Any, **named: Any) -> str:
    """`rival.rewind('r', 'charge')`"""
    parts = [repr(one) for one in args] + [f"{key}={value!r}" for key, value in named.items() if value is not None]
    return f"rival.{method}({', '.join(parts)})"
