"""A check of `rival doctor`: what it found and what to do; and the checks of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rival_workers.settings import WorkerSettings

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding. "fail": Rival does not work, or its guarantees do not hold, until `advice` is followed."""

    name: str
    status: Status
    message: str
    advice: str = ""


def check_settings(settings: WorkerSettings) -> Iterator[Check]:
    found = [Check("settings", status, message, advice) for status, message, advice in _rules(settings)]
    yield from found or [Check("settings", "ok", f"lease {settings.lease:g} s, queue {settings.queue!r}")]


def _rules(s: WorkerSettings) -> Iterator[tuple[Status, str, str]]:
    lease, grace = f"RIVAL_LEASE={s.lease:g} s", f"RIVAL_RING_GRACE={s.ring_grace:g} s"
    if s.failpoint:
        yield "fail", "RIVAL_FAILPOINT is set: workers kill themselves", "unset it; it is for tests"
    if s.lease < 5:
        yield "warn", f"{lease} is short: a pause of a busy machine loses attempts", "use 5 s or more in production"
    if s.lease > 120:
        yield "warn", f"{lease}: the steps of a dead worker wait that long", "lower it"
    if s.keeper_interval > s.lease / 2:
        message = f"RIVAL_KEEPER_INTERVAL={s.keeper_interval:g} s is long for a lease of {s.lease:g} s"
        yield "warn", f"{message}: takeovers are late", "use a tenth of the lease or less"
    if s.ring_grace < 2:
        yield "warn", f"{grace}: messages that a busy fleet already has are published again", "use 5 s or more"
    if s.ring_grace > 120:
        yield "warn", f"{grace}: a lost message is replaced only after that time", "use 10 s"
    if s.near > 300:
        yield "warn", f"RIVAL_NEAR={s.near:g} s: long countdowns fill one worker's memory", "use 30 s"
    if s.max_payload > 16 * 2**20:
        message = f"RIVAL_MAX_PAYLOAD={s.max_payload:,} bytes: large rows slow every step"
        yield "warn", message, "store large values elsewhere and pass references"
    if 0 < s.retention < 3600:
        message = f"RIVAL_RETENTION={s.retention:g} s: ended runs are deleted that soon"
        yield "warn", message, "it is in seconds: a week is 604800"


def check_as_json(check: Check) -> dict[str, Any]:
    return {"check": check.name, "status": check.status, "message": check.message, "advice": check.advice or None}
