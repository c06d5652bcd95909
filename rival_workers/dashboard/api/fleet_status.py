"""Routes of the fleet: executors and their attempts, what waits, and the checks of `rival doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rival_workers.cli.doctor.broker_checks import check_broker
from rival_workers.cli.doctor.checks import Check, check_settings
from rival_workers.cli.doctor.database_checks import check_database
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.commands import call_text, commands, shell_text
from rival_workers.dashboard.overview import read_fleet
from rival_workers.dashboard.route import Call, Confirmed, Route
from rival_workers.settings import WorkerSettings


def fleet(call: Call) -> dict[str, Any]:
    return call.board.fleet.get(lambda: read_fleet(call.board))


# -- doctor -----------------------------------------------------------------------------------------------

_STATES = {"ok": "ok", "warn": "warning", "fail": "failed"}


def doctor(call: Call) -> dict[str, Any]:
    """Settings are checked as the dashboard has them; those of workers can differ."""
    settings = call.board.settings
    return {"checks": call.board.checks.get(lambda: [_check(one) for one in _checks(settings)])}


def _checks(settings: WorkerSettings) -> Iterator[Check]:
    for check in (check_settings, check_broker, check_database):
        yield from check(settings)


def _check(one: Check) -> dict[str, Any]:
    return {"name": one.name, "state": _STATES[one.status], "text": one.message, "do": one.advice or None}


def recover(call: Call) -> dict[str, Any]:
    texts = commands(call.base, "fleet/recover", shell_text("recover"), call_text("recover"), {})
    if call.body.dry_run:
        return {"done": False, "commands": texts}
    found = call.board.rival.recover()
    audit(call, "recover", "fleet", **vars(found))
    return {"done": True, **vars(found), "commands": texts}


ROUTES = (
    Route("GET", "/fleet", "viewer", fleet, "Read executors, queues and what is parked", does="top"),
    Route("GET", "/doctor", "viewer", doctor, "Check database, broker, workers, clocks and settings", does="doctor"),
    Route("POST", "/fleet/recover", "admin", recover, "Publish lost messages again", body=Confirmed, does="recover"),
)
