"""Side effects that a test can count although they happen in other processes: lines of a file."""

from __future__ import annotations

import os
from pathlib import Path


def note(file: str, text: str) -> str:
    """Append one line in one write, so that lines of several processes do not mix."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{text}\n".encode())
    finally:
        os.close(handle)
    return text


def notes(file: str) -> list[str]:
    return Path(file).read_text().split() if Path(file).exists() else []
