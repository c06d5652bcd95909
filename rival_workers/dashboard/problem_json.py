"""Errors as `application/problem+json`: one answer format for everything that is refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from rival_client import errors
from rival_client.db.read_only import TIMED_OUT

log = logging.getLogger("rival.dashboard")

DOCS = "https://github.com/rival-workflows/rival/blob/main/docs/reference/errors.md"
Problems = list[dict[str, str]]
PROBLEM = {
    "type": "object",
    "required": ["type", "code", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "code": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {"pointer": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


class Refused(Exception):
    """A request that is refused. `code` names the reason, for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Problems | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors, self.headers = errors, dict(headers or {})


#: The first class that fits decides.
_STATUSES: tuple[tuple[type[errors.RivalError], int], ...] = (
    (errors.RunNotFound, 404),
    (errors.UnknownWorkflow, 404),
    (errors.UnknownSchedule, 404),
    (errors.UnknownLimit, 404),
    (errors.RunConflict, 409),
    (errors.EventConflict, 409),
    (errors.RunHasMoved, 412),
    (errors.NotPossible, 409),
    (errors.RunNotEnded, 409),
    (errors.InvalidPayload, 413),
    (errors.InvalidInput, 422),
    (errors.InvalidArgument, 422),
    (errors.InvalidToken, 422),
    (errors.TopicFull, 429),
    (errors.DatabaseUnavailable, 503),
    (errors.DatabaseBusy, 503),
    (errors.DatabaseError, 503),
    (errors.RivalError, 422),
)


def refused(error: Exception) -> Refused:
    """Any error as a refusal. What is not expected is logged, and only says so."""
    match error:
        case Refused():
            return error
        case ValidationError():
            return not_parsed(error)
        case errors.DatabaseRefused() if error.about_values:
            return Refused(422, "InvalidArgument", "The database cannot store or compare a value of the request.")
        case errors.DatabaseError() if error.sqlstate == TIMED_OUT:
            return Refused(504, "TooWide", "The search took too long: narrow it by workflow, status or time.")
        case errors.RivalError():
            return _of_rival(error)
    log.error("a request failed", exc_info=error)
    return Refused(500, "Unexpected", "An unexpected error of the dashboard: its log has the traceback.")


def _of_rival(error: errors.RivalError) -> Refused:
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    headers = {"retry-after": "2"} if status in (429, 503) else None
    return Refused(status, type(error).__name__, str(error), errors=_pointers(error), headers=headers)


def _pointers(error: errors.RivalError) -> Problems | None:
    if isinstance(error, errors.InvalidInput):
        return [{"pointer": one.pointer, "message": one.message} for one in error.found]
    if isinstance(error, errors.InvalidArgument):
        # `runs[1]` is the item at `/runs/1`.
        return [{"pointer": "/" + re.sub(r"\[(\d+)\]", r"/\1", error.argument), "message": error.problem}]
    return None


def not_parsed(error: ValidationError, prefix: str = "/") -> Refused:
    """A query or a body that its model refuses."""
    found = [{"pointer": prefix + pointer(one["loc"]), "message": one["msg"]} for one in error.errors()]
    return Refused(400, "BadRequest", "The request does not fit: see `errors`.", errors=found)


def pointer(parts: Iterable[Any]) -> str:
    return "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def as_document(problem: Refused) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": f"{DOCS}#{problem.code.lower()}",
        "code": problem.code,
        "title": problem.detail.split(". ")[0].rstrip("."),
        "status": problem.status,
        "detail": problem.detail,
    }
    return document if problem.errors is None else {**document, "errors": problem.errors}
