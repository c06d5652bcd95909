"""The route of `why`: what a run waits for."""

from __future__ import annotations

from typing import Any

from rival_client.sql.reads.why_reads import read_facts
from rival_workers.dashboard.entry_views import why_view
from rival_workers.dashboard.route import Call, Route


def why(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        facts = read_facts(connection, call.names["run_id"])
    return why_view(call.board.reader._explained(facts), call.board.veil_of(facts.workflow, facts.version))


ROUTES = (Route("GET", "/runs/{run_id}/why", "viewer", why, "Explain what a run waits for", does="why"),)
