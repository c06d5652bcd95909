"""`log` in a step: bound to its run, step and attempt; to the process log at once, to the store in batches."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

from rival_client.payload import dump, load
from rival_client.records import LogEntry

logger = logging.getLogger("rival.steps")

MAX_ENTRIES = 1000
MAX_MESSAGE = 4000
_SECRET = ("password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "credential")


class StepLog:
    """`log.info("searching", tree_type="oak")`."""

    def __init__(self, run_id: str, label: str, path: str, attempt: int) -> None:
        self._run_id, self._label, self._path, self._attempt = run_id, label, path, attempt
        self.entries: list[LogEntry] = []

    def debug(self, message: str, **fields: Any) -> None:
        self._write("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, Any]) -> None:
        shown = {key: redacted(key, value) for key, value in fields.items()}
        logger.log(
            getattr(logging, level.upper()), "%s run=%s attempt=%d %s%s", self._label, self._run_id, self._attempt,
            message, "".join(f" {key}={value!r}" for key, value in shown.items()),
        )  # fmt: skip
        if len(self.entries) < MAX_ENTRIES:
            storable = (
                load(dump(shown, what="log fields"))
                if _is_json(shown)
                else {_storable(k): _storable(repr(v)) for k, v in shown.items()}
            )
            self.entries.append(
                LogEntry(dt.datetime.now(dt.UTC), level, self._path, self._attempt, _storable(message), storable)
            )


def _storable(message: str) -> str:
    return str(message)[:MAX_MESSAGE].replace("\x00", "\\0").encode("utf-8", "replace").decode()


def _is_json(fields: dict[str, Any]) -> bool:
    try:
        dump(fields, what="log fields", limit=16 * 1024)
    except Exception:
        return False
    return True


def redacted(key: object, value: Any) -> Any:
    """The value, or *** when its name sounds like a secret; also within it."""
    if any(word in str(key).lower() for word in _SECRET):
        return "***"
    if isinstance(value, dict):
        return {inner: redacted(inner, its) for inner, its in value.items()}
    if isinstance(value, list | tuple):
        return [redacted("", item) for item in value]
    return value
