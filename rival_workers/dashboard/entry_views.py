"""Converts history entries, log entries and reasons to the JSON of the API."""

from __future__ import annotations

from typing import Any

from rival_client.model.run_entries import HistoryEntry
from rival_client.model.why.why_records import Reason, Why
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.veil import Veil


def entry_view(entry: HistoryEntry, veil: Veil) -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": moment(entry.at),
        "what": entry.what,
        "step": entry.path,
        "by": entry.by,
        "detail": veil.hidden(entry.detail),
    }


def log_view(line: Any, veil: Veil) -> dict[str, Any]:
    """Workers have hidden secrets before they stored it; words that were added since are hidden here."""
    return {
        "id": line.id,
        "at": moment(line.at),
        "level": line.level,
        "step": line.path,
        "attempt": line.attempt,
        "message": veil.text(line.message),
        "fields": veil.hidden(line.fields),
    }


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
