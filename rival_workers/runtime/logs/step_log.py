"""`log` in a step, for its run, step and attempt. Each entry goes to the process log at once, and to the store in
batches (see `stream`). Logging never fails a step."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from rival_client.model.payload import dump, load
from rival_client.model.run_entries import LogEntry
from rival_workers.runtime.logs.redaction import DEFAULT, Redaction

logger = logging.getLogger("rival.steps")

#: Limits of the stored log of one attempt, and of one entry. The process log has no limits.
MAX_ENTRIES, MAX_BYTES = 10_000, 4 * 1024 * 1024
MAX_MESSAGE, MAX_FIELDS, _MAX_NAME = 4000, 16 * 1024, 200
_LEVELS = ("debug", "info", "warning", "error")
_NEVER, _MICROSECOND = dt.datetime.min.replace(tzinfo=dt.UTC), dt.timedelta(microseconds=1)

#: Stores entries of a run: (run id, entries, whether some of them may be stored already).
Append = Callable[[str, Sequence[LogEntry], bool], None]

#: The level for the flow's step that runs in this context.
_lowest: ContextVar[str | None] = ContextVar("rival_log_level", default=None)


@contextmanager
def lowest_level(level: str) -> Iterator[None]:
    """Set the lowest level that the block logs: a flow's step writes to the log of its flow."""
    before = _lowest.set(level)
    try:
        yield
    finally:
        _lowest.reset(before)


class Listener(Protocol):
    """Called when entries wait to be stored."""

    def written(self, log: StepLog, waiting: int) -> None: ...


class StepLog:
    """`log.info("searching", tree_type="oak")`."""

    def __init__(
        self,
        run_id: str,
        workflow: str,
        path: str,
        attempt: int,
        *,
        redaction: Redaction = DEFAULT,
        listener: Listener | None = None,
    ) -> None:
        self._run_id, self._workflow, self._path, self._attempt = run_id, workflow, path, attempt
        self._redaction, self._listener = redaction, listener
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._waiting: list[LogEntry] = []
        self._in_doubt = False
        self._count = self._bytes = self._dropped = 0
        self._last = _NEVER
        #: True while a flow suspends: entries of its `finally` blocks would repeat at each suspension.
        self.is_muted: Callable[[], bool] = lambda: False
        #: The lowest level that is written.
        self.level: str | None = None

    def debug(self, message: str, **fields: Any) -> None:
        self._write("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._write("error", message, fields)

    # -- writing ------------------------------------------------------------------------------------------

    def _write(self, level: str, message: object, fields: dict[str, Any]) -> None:
        lowest = _lowest.get() or self.level
        if self.is_muted() or (lowest is not None and _LEVELS.index(level) < _LEVELS.index(lowest)):
            return
        text = self._redaction.text(_storable(message, str))
        shown = {name: self._redaction.value(name, value) for name, value in _plain(fields).items()}
        self._log_to_process(level, text, shown)
        with self._lock:
            waiting = self._keep(level, text, shown)
        if waiting and self._listener is not None:
            self._listener.written(self, waiting)

    def _log_to_process(self, level: str, message: str, fields: dict[str, Any]) -> None:
        number = getattr(logging, level.upper())
        if logger.isEnabledFor(number):
            named = "".join(f" {name}={value!r}" for name, value in fields.items())
            about = {"run": self._run_id, "workflow": self._workflow, "step": self._path, "attempt": self._attempt}
            extra = {"rival": {"message": message, **about, "fields": fields}}
            step = f"{self._workflow}.{self._path} run={self._run_id} attempt={self._attempt}"
            logger.log(number, "%s %s%s", step, message, named, extra=extra)

    def _keep(self, level: str, message: str, fields: dict[str, Any]) -> int:
        """Returns the number of waiting entries, or 0 if this one found no room."""
        size = len(message) + sum(len(name) + len(str(value)) for name, value in fields.items())
        if self._dropped or self._count >= MAX_ENTRIES or self._bytes + size > MAX_BYTES:
            self._dropped += 1
            if self._dropped > 1:
                return 0
            level, message, fields = "warning", _FULL, {"entries": self._count, "bytes": self._bytes}
        self._count += 1
        self._bytes += size
        self._add(level, message, fields)
        return len(self._waiting)

    def _add(self, level: str, message: str, fields: dict[str, Any]) -> None:
        # Strictly increasing within an attempt, so that each entry has a unique time.
        self._last = max(dt.datetime.now(dt.UTC), self._last + _MICROSECOND)
        self._waiting.append(LogEntry(self._last, level, self._path, self._attempt, message, fields))

    # -- storing ------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of entries that are not stored yet."""
        return len(self._waiting)

    def end(self) -> None:
        """At the end of the attempt: log how many entries were dropped."""
        if self._dropped:
            with self._lock:
                self._add("warning", _DROPPED, {"dropped": self._dropped})

    def store(self, append: Append, *, wait: bool = True) -> bool:
        """Store the waiting entries in order. An error leaves them waiting. Returns False if another thread stores them
        at this moment (only with `wait=False`)."""
        if not self._storing.acquire(blocking=wait):
            return False
        try:
            batch = list(self._waiting)
            if batch:
                again, self._in_doubt = self._in_doubt, True
                append(self._run_id, batch, again)
                self._in_doubt = False
                self._remove(len(batch))
        finally:
            self._storing.release()
        return True

    def give_up(self) -> int:
        """Drop the waiting entries, which cannot be stored. Returns their number."""
        with self._storing:
            lost = len(self._waiting)
            self._remove(lost)
            return lost

    def _remove(self, count: int) -> None:
        with self._lock:
            del self._waiting[:count]


_FULL = "the log of this attempt is full: further entries are in the process log only"
_DROPPED = "entries were dropped, since the log of this attempt was full; the process log has them"


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as JSON that can be stored. A value that is not JSON becomes its repr; fields beyond the limit are cut."""
    try:
        plain: dict[str, Any] = load(dump(fields, what="log fields", limit=MAX_FIELDS))
        return plain
    except Exception:
        return _bounded(fields)


def _bounded(fields: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    room = MAX_FIELDS
    for name, value in fields.items():
        key, plain, size = _storable(name, str)[:_MAX_NAME], *_field(value)
        room -= len(key) + size
        if room < 0:
            return kept | {"…": f"{len(fields) - len(kept)} more fields left out"}
        kept[key] = plain
    return kept


def _field(value: Any) -> tuple[Any, int]:
    try:
        text = dump(value, what="a log field", limit=MAX_MESSAGE)
        return load(text), len(text)
    except Exception:
        plain = _storable(value, str if isinstance(value, str) else repr)
        return plain, len(plain)


def _storable(value: object, as_text: Callable[[object], str]) -> str:
    try:
        text = as_text(value)[:MAX_MESSAGE]
    except Exception as broken:
        text = f"(a {type(value).__name__} that cannot be shown: {type(broken).__name__})"
    return text.replace("\x00", "\\0").encode("utf-8", "replace").decode()
