"""Which ends of steps the fast statements can commit, and what follows from them. No statements."""

from __future__ import annotations

from rival_client.model import statuses
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.paths import is_handler
from rival_workers.store.claim_records import Claim


def has_succeeded(claim: Claim, end: End) -> bool:
    """A failed attempt is recorded with its error, also if its step has not failed, a handler's result is not the
    result of the run, and others may wait for a step with an idempotency key."""
    if claim.guard != "execution_token" or end.outcome != statuses.COMPLETED or end.status == statuses.FAILED:
        return False
    return not end.keyed and not is_handler(claim.path)


def at_once(advance: Advance, opening: OpenRow | None) -> bool:
    return opening is not None and advance.goes_on(opening) and not advance.limits_of(opening)
