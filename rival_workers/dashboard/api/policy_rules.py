"""Routes of policies: the rules of the fleet, and where the options of a step come from."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from pydantic import Field

from rival_client.model.policies.rulebook import FleetRule
from rival_client.model.policies.run_policies import one_rule
from rival_workers.dashboard.api.filters import moment_of
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.commands import as_json, call_text, commands, shell_text
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Confirmed, Form, Route
from rival_workers.dashboard.values import moment


def rules(call: Call) -> dict[str, Any]:
    return {"items": [rule_view(one) for one in call.board.reader.policies()]}


def rule_view(one: FleetRule) -> dict[str, Any]:
    about = {"id": one.id, "match": str(one.rule.match), "options": dict(one.rule.options)}
    times = {"created_at": moment(one.created_at), "expires_at": moment(one.expires_at)}
    return {**about, **times, "reason": one.reason, "by": one.author}


class NewRule(Confirmed):
    #: name, regex, kind, path, tag, workflow or labels; all must fit.
    match: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(min_length=1)
    workflow: str | None = None
    reason: str | None = None
    #: A time. Without one it stays until it is removed.
    until: str | None = None


def set_rule(call: Call) -> dict[str, Any]:
    given: NewRule = call.body
    until = moment_of("until", given.until, 1)
    texts = _commands(call, given, until)
    if given.dry_run:
        one_rule(given.match, given.options)
        return {"rule": None, "commands": texts}
    about: dict[str, Any] = {"workflow": given.workflow, "reason": given.reason, "until": until, "by": call.by}
    made = call.board.rival.set_policy(given.match, given.options, **about)
    audit(call, "set_policy", f"rule:{made.id}", match=str(made.rule.match), options=given.options)
    return {"rule": rule_view(made), "commands": texts}


def _is_for_all(given: NewRule) -> bool:
    return not given.match and not given.workflow


def _commands(call: Call, given: NewRule, until: dt.datetime | None) -> dict[str, str]:
    named = given.model_dump(include={"workflow", "reason", "until"}, exclude_none=True)
    options = [f"{name}={_plain(value)}" for name, value in given.options.items()]
    shell = shell_text("policy set", *options, match=list(_matchers(given.match)), all=_is_for_all(given), **named)
    python = call_text("set_policy", given.match, given.options, **{**named, "until": until})
    body = {"match": given.match, "options": given.options, **named}
    return commands(call.base, "policies", shell, python, body)


def _matchers(match: dict[str, Any]) -> list[str]:
    labels = match.get("labels") if isinstance(match.get("labels"), dict) else {}
    plain = [f"{name}={_plain(value)}" for name, value in match.items() if name != "labels"]
    return [*plain, *(f"label.{name}={value}" for name, value in (labels or {}).items())]


def _plain(value: Any) -> str:
    """Writes a value of a match as `rival policy set --match` reads it."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value if isinstance(value, str) else as_json(value)


def remove_rule(call: Call) -> dict[str, Any]:
    name = call.names["rule"]
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        raise Refused(404, "NotFound", f"Unknown rule {name[:40]!r}.")
    number = int(name)
    texts = commands(
        call.base, f"policies/{number}/remove", shell_text("policy rm", name), call_text("remove_policy", number), {}
    )
    if call.body.dry_run:
        return {"removed": False, "commands": texts}
    removed = call.board.rival.remove_policy(number)
    audit(call, "remove_policy", f"rule:{number}")
    return {"removed": removed, "commands": texts}


class ExplainQuery(Form):
    step: str = Field(min_length=1)
    attempt: int | None = Field(default=None, ge=1, le=2**31 - 1)
    #: Of its next attempt.
    next: bool = False


def explain(call: Call) -> dict[str, Any]:
    query, run_id = call.query, call.names["run_id"]
    found = call.board.reader.explain_policy(run_id, query.step, attempt=query.attempt, preview=query.next)
    named = {"attempt": query.attempt, "next": query.next}
    shell = shell_text("policy explain", run_id, query.step, **named)
    shown = [dataclasses.asdict(one) for one in found.fields if one.layer != "default"]
    return {"attempt": found.attempt, "options": shown, "commands": {"shell": shell}}


ROUTES = (
    Route("GET", "/policies", "viewer", rules, "List the rules of the fleet", does="policy ls"),
    Route("POST", "/policies", "admin", set_rule, "Set a rule for the fleet", body=NewRule, does="policy set"),
    Route("POST", "/policies/{rule}/remove", "admin", remove_rule, "Remove one", body=Confirmed, does="policy rm"),
    Route(
        "GET",
        "/runs/{run_id}/policy",
        "viewer",
        explain,
        "Explain where the options of a step come from",
        query=ExplainQuery,
        does="policy explain",
    ),
)
