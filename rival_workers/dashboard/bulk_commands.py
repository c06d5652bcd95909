"""Writes a verb on many runs as commands, without the values that are hidden."""

from __future__ import annotations

import json
from typing import Any

from rival_client.api.bulk import LIMIT
from rival_workers.dashboard.api.filters import RunQuery
from rival_workers.dashboard.commands import Commands, as_json, call_text, curl_text, each_line, incomplete, shell_text
from rival_workers.dashboard.route import Call
from rival_workers.dashboard.verb_names import NEED_REASON, VERBS


def bulk_commands(call: Call, verb: str, order: dict[str, Any], preview: str | None) -> Commands:
    """Every viewer sees them. `preview`: the id of the one that they are of, which curl confirms."""
    result = call.board.wide_veil().hidden(order["result"])
    shown = {**order, "result": result, "filter": _shown_filter(call, order["filter"])}
    named = {"step": order["step"], "value": shown["result"], "reason": order["reason"]}
    chosen = RunQuery(**shown["filter"]).chosen() if shown["filter"] else order["runs"]
    limit = order["limit"] if shown["filter"] and order["limit"] != LIMIT else None
    python = call_text("bulk", verb, chosen, **named, limit=limit)
    body = {"verb": VERBS[verb], **{name: value for name, value in shown.items() if value is not None}}
    texts = {"shell": _shell(verb, shown), "python": python, "curl": _curl(call.base, body, preview)}
    if _plain(shown) == _plain(order):
        return texts
    return incomplete(texts, "shell", "python", *(["curl"] if preview is None else []))


def _curl(base: str, body: dict[str, Any], preview: str | None) -> str:
    """The call that confirms the preview. Of an action, whose preview cannot be confirmed again, both calls."""
    if preview is not None:
        return curl_text(base, "bulk", {"preview": preview, "dry_run": False})
    first = curl_text(base, "bulk", {**body, "dry_run": True})
    then = "# As soon as that preview has ended, with the `id` of the answer:"
    return "\n".join([first, then, curl_text(base, "bulk", {"preview": "ID", "dry_run": False})])


def _shown_filter(call: Call, chosen: dict[str, Any] | None) -> dict[str, Any] | None:
    """The filter as people may see it: hidden values are masked, and the values to look for are JSON text."""
    if chosen is None:
        return None
    veil = call.board.wide_veil() if "workflow" not in chosen else call.board.current_veil(chosen["workflow"])
    return {**chosen, **{name: as_json(veil.hidden(its)) for name, its in _sought(chosen).items()}}


def _sought(chosen: dict[str, Any] | None) -> dict[str, Any]:
    """The values to look for, of a filter."""
    return {name: json.loads(chosen[name]) for name in ("input", "result") if name in (chosen or {})}  # type: ignore[index]


def _plain(order: dict[str, Any]) -> Any:
    return order["result"], _sought(order["filter"])


def _shell(verb: str, order: dict[str, Any]) -> str:
    """With a filter one command; for chosen runs one command each."""
    value = as_json(order["result"]) if verb == "set_result" else None
    reason = order["reason"] if verb in NEED_REASON else None
    if order["filter"] is not None:
        limit = order["limit"] if order["limit"] != LIMIT else None
        how = {"step": order["step"], "value": value, "reason": reason, "limit": limit}
        return shell_text(VERBS[verb], **_options(order["filter"]), **how, yes=True)
    step = [order["step"]] if order["step"] else []
    given = [*step, *([value] if value is not None else [])]
    return each_line(shell_text(VERBS[verb], one, *given, reason=reason) for one in order["runs"])


def _options(chosen: dict[str, Any]) -> dict[str, Any]:
    """A filter as options of the command."""
    found = {name: value for name, value in chosen.items() if name not in ("status", "paused", "labels")}
    if "status" in chosen:
        found["status"] = chosen["status"].split(",")
    if "labels" in chosen:
        found["label"] = [f"{name}={value}" for name, value in json.loads(chosen["labels"]).items()]
    if "paused" in chosen:
        found["paused" if chosen["paused"] else "not-paused"] = True
    return found
