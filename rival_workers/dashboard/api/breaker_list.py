"""Routes of circuit breakers: list, open, close and reset them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.policies.breakers import BreakerRecord
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.commands import call_text, commands, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.route import Call, Confirmed, Route
from rival_workers.dashboard.values import fields, moments


def breakers(call: Call) -> dict[str, Any]:
    return {"items": [_breaker(one) for one in call.board.reader.breakers()]}


def _breaker(one: BreakerRecord) -> dict[str, Any]:
    known = fields(one, "name state opened successes failures changed_by")
    probe = None if one.probe_run is None else {"run": one.probe_run, "step": one.probe_path}
    return {**known, **moments(one, "until changed_at"), "probe": probe}


class OpenBreaker(Confirmed):
    seconds: float | None = Field(default=None, gt=0, le=10**9)
    force: bool = False


def open_breaker(call: Call) -> dict[str, Any]:
    return _with_breaker(call, "open", seconds=call.body.seconds, force=call.body.force or None)


def close_breaker(call: Call) -> dict[str, Any]:
    return _with_breaker(call, "close")


def reset_breaker(call: Call) -> dict[str, Any]:
    return _with_breaker(call, "reset")


def _with_breaker(call: Call, verb: str, **given: Any) -> dict[str, Any]:
    """`changed` is False if it was not open, or does not exist."""
    name, method = call.names["breaker"], f"{verb}_breaker"
    body = {key: value for key, value in given.items() if value is not None}
    shell, python = shell_text(f"breaker {verb}", name, **body), call_text(method, name, **body)
    texts = commands(call.base, f"breakers/{in_path(name)}/{verb}", shell, python, body)
    if call.body.dry_run:
        return {"changed": False, "commands": texts}
    by = {} if verb == "reset" else {"by": call.by}
    changed = getattr(call.board.rival, method)(name, **body, **by)
    audit(call, method, f"breaker:{name}", **body)
    return {"changed": changed is not False, "commands": texts}


_BREAKER = "/breakers/{breaker}"
ROUTES = (
    Route("GET", "/breakers", "viewer", breakers, "List circuit breakers", does="breaker ls"),
    Route("POST", f"{_BREAKER}/open", "operator", open_breaker, "Open one", body=OpenBreaker, does="breaker open"),
    Route("POST", f"{_BREAKER}/close", "operator", close_breaker, "Close one", body=Confirmed, does="breaker close"),
    Route("POST", f"{_BREAKER}/reset", "operator", reset_breaker, "Reset one", body=Confirmed, does="breaker reset"),
)
