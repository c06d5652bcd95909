"""The process log: written to standard error, as text (`console`) or as one JSON object per line (`json`)."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
from typing import Any

CONSOLE = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    """Formats records as JSON. Entries of steps keep their fields: run, workflow, step, attempt and the user's
    fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            **(getattr(record, "rival", None) or {"message": record.getMessage()}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def write_json_line(logger: str, message: str) -> None:
    """Write a line from a signal handler, without the lock of a log handler, which the interrupted code may hold."""
    record = logging.LogRecord(logger, logging.INFO, "", 0, message, None, None)
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{JsonLines().format(record)}\n".encode())


def start_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(CONSOLE))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # A Python warning would be a line of text between the JSON objects.
    logging.captureWarnings(form == "json")
    logging.getLogger("alembic").setLevel(logging.WARNING)
