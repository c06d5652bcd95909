"""The cursor of a page of runs: its last run, as text that clients give back for the next page."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from dataclasses import dataclass
from typing import Self

from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, argument_errors, arguments
from rival_client.model.records import Run


@dataclass(frozen=True)
class Cursor:
    """The last run of a page: the next one begins behind it."""

    created_at: dt.datetime
    run_id: str

    @classmethod
    def of(cls, run: Run) -> Self:
        return cls(run.created_at, run.run_id)

    @classmethod
    def read(cls, text: str) -> Self:
        try:
            created_at, run_id = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            return cls(amounts.moment("after", dt.datetime.fromisoformat(created_at)), arguments.run_id(run_id))
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise argument_errors.invalid(
                "after", text, "a cursor: give the `next` of the page before, as it was"
            ) from None

    def __str__(self) -> str:
        text = json.dumps([self.created_at.astimezone(dt.UTC).isoformat(), self.run_id], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor(before: Run | None, after: str | None) -> Cursor | None:
    """Either of the forms in which a page can be continued."""
    if before is not None and after is not None:
        raise InvalidArgument("after", "give either `before`, a run, or `after`, a cursor: each says where to begin.")
    if after is not None:
        return Cursor.read(after)
    return None if before is None else Cursor.of(arguments.instance("before", before, Run))
