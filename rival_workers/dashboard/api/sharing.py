"""Routes that reveal a hidden value to an admin, and make links to one run that expire."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import Field

from rival_client.sql.reads.run_reads import read_run, read_run_head
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.run_parts import everything, value_of
from rival_workers.dashboard.veil import at_pointer

#: The longest time that a shared link is valid, in hours.
_LONGEST = 24 * 30


class Reveal(Form):
    of: Literal["input", "result", "error", "step-result", "item"]
    step: str | None = None
    pointer: str = Field(default="", max_length=2000)
    reason: str = Field(min_length=1, max_length=2000)


def reveal(call: Call) -> dict[str, Any]:
    """One value as it is. Who has seen it, and why, is recorded first."""
    run_id, given = call.names["run_id"], call.body
    with call.board.database.snapshot() as connection:
        run = read_run(connection, run_id)
        value = value_of(connection, run, given.of, given.step)
    try:
        found = at_pointer(value, given.pointer)
    except (LookupError, ValueError, TypeError):
        raise Refused(404, "NotFound", f"{given.pointer!r} does not point to a value.") from None
    what = {"of": given.of, "step": given.step, "pointer": given.pointer, "reason": given.reason}
    audit(call, "reveal", f"run:{run_id}", **what)
    return {"value": found}


# -- links ------------------------------------------------------------------------------------------------


class Share(Form):
    run: str
    hours: float = Field(default=24.0, gt=0, le=_LONGEST)


def share(call: Call) -> Answer:
    given: Share = call.body
    with call.board.database.snapshot() as connection:
        read_run_head(connection, given.run)
    expires = time.time() + given.hours * 3600
    token = call.board.sessions.signed({"share": given.run, "expires": expires})
    audit(call, "share", f"run:{given.run}", hours=given.hours)
    return Answer({"url": f"share/{token}", "expires_at": _moment(expires)}, 201)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def shared(call: Call) -> dict[str, Any]:
    """Shows the run of a link without a login: without secrets, until the link expires."""
    content = call.board.sessions.unsigned(call.names["token"])
    if content is None or "share" not in content or content.get("expires", 0) < time.time():
        raise Refused(404, "NotFound", "This link is not valid, or has expired.")
    found = everything(call.board, content["share"])
    return {**found, "expires_at": _moment(content["expires"])}


ROUTES = (
    Route("POST", "/runs/{run_id}/reveal", "admin", reveal, "Show a value that is hidden", body=Reveal),
    Route("POST", "/shares", "admin", share, "Make a link to a run that expires", body=Share, status=201),
    Route("GET", "/shares/{token}", "none", shared, "Read a shared run"),
)
