"""Parses the query of a list of runs, which has the words of `rival ls`."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

from pydantic import Field, field_validator

from rival_client.errors import InvalidArgument
from rival_client.model.json_checks import refuse_deep
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.route import Form

_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class RunQuery(Form):
    workflow: str | None = None
    #: Several with commas between them.
    status: str | None = None
    since: str | None = None
    until: str | None = None
    ended_since: str | None = None
    ended_until: str | None = None
    error: str | None = None
    parent: str | None = None
    paused: bool | None = None
    #: JSON objects that must be contained.
    input: str | None = None
    result: str | None = None
    #: A JSON object: labels that it must have.
    labels: str | None = None

    @field_validator("input", "result", "labels", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """In a body they are objects."""
        return json.dumps(value) if isinstance(value, dict) else value

    def chosen(self) -> RunFilter:
        return RunFilter(
            workflow=self.workflow,
            status=self.status.split(",") if self.status else None,  # type: ignore[arg-type]
            since=moment_of("since", self.since),
            until=moment_of("until", self.until),
            ended_since=moment_of("ended_since", self.ended_since),
            ended_until=moment_of("ended_until", self.ended_until),
            error=self.error,
            parent=self.parent,
            paused=self.paused,
            input=_object("input", self.input),
            result=_object("result", self.result),
            labels=_object("labels", self.labels),
        ).checked()

    def refuse_hidden(self, board: Board, who: Identity | None) -> None:
        """To find runs by a value is to learn it: what is hidden from a reader cannot be searched by them."""
        asked = [one for one in (_object("input", self.input), _object("result", self.result)) if one is not None]
        if not asked or board.may(who, "admin", writes=False):
            return
        veils = [board.current_veil(self.workflow)] if self.workflow else board.all_veils()
        for name in filter(None, (veil.hides_any(asked) for veil in veils)):
            more = "" if self.workflow else " If another workflow has it in the open, name that workflow."
            raise Refused(403, "Forbidden", f"{name!r} is hidden: only an admin can search for it.{more}")

    @property
    def reads_values(self) -> bool:
        """It looks into inputs or results, which have no index."""
        return self.input is not None or self.result is not None


class RunListQuery(RunQuery):
    #: The start of a run id, or a Celery task id.
    q: str | None = Field(default=None, max_length=2000)
    after: str | None = None
    limit: int = Field(default=50, ge=1, le=200)
    #: The page begins with this run; those that are newer are only counted.
    first: str | None = None


def moment_of(name: str, text: str | None, sign: int = -1) -> dt.datetime | None:
    """A time, or how long ago, or with the sign 1 how far ahead: `2026-11-17T10:00:00Z`, `2h`."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return dt.datetime.now(dt.UTC) + sign * dt.timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
        found = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidArgument(name, f"{text[:60]!r} is not a time: give 2026-11-17T10:00:00Z, or 2h, 7d.") from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _object(name: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    refuse_deep(text, name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(name, 'give a JSON object that it must contain: {"customer": {"id": 7}}')
    return found
