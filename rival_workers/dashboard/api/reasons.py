"""The route of `why`: what a run waits for."""

from __future__ import annotations

from typing import Any

from rival_client.model.explain import explain
from rival_client.model.why_records import Reason, Why
from rival_client.sql.reads.why_reads import read_facts
from rival_workers.dashboard.route import Call, Route
from rival_workers.dashboard.values import Veil, moment


def why(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        facts = read_facts(connection, call.names["run_id"])
    return why_view(explain(facts), call.board.veil_of(facts.workflow, facts.version))


def why_view(found: Why, veil: Veil) -> dict[str, Any]:
    return {
        "run": found.run_id,
        "status": found.status,
        "sentence": veil.text(found.sentence),
        "reasons": [_reason(one, veil) for one in found.reasons],
        "more": found.more,
        "at": moment(found.at),
    }


def _reason(one: Reason, veil: Veil) -> dict[str, Any]:
    return {
        "step": one.step,
        "what": one.what,
        "text": veil.text(one.text),
        "since": moment(one.since),
        "until": moment(one.until),
        "who": one.who,
        "do": one.do,
        "command": one.command,
        "evidence": [{"text": veil.text(text)} for text in one.evidence],
        "known": one.known,
    }


ROUTES = (Route("GET", "/runs/{run_id}/why", "viewer", why, "Explain what a run waits for", does="why"),)
