"""Every type of history entry: its fields, the transition that writes it, and the status of the step after it.

`rebuild` reads the statuses from here, and a test compares the list with docs/reference/history.md and with the entries
that the code writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The names, as the store writes them.
REQUESTED: Final = "requested"
STARTED: Final = "started"
GATHERED: Final = "gathered"
START_SKIPPED: Final = "start_skipped"
EXPIRED: Final = "expired"
QUEUED: Final = "queued"
FAILING: Final = "failing"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLING: Final = "cancelling"
CANCELLED: Final = "cancelled"
PAUSED: Final = "paused"
RESUMED: Final = "resumed"
RETRY_RUN: Final = "retry_run"
REWIND_RUN: Final = "rewind_run"
SCHEDULED: Final = "scheduled"
CLAIMED: Final = "claimed"
UNQUEUED: Final = "unqueued"
OPENED: Final = "opened"
FANNED_OUT: Final = "fanned_out"
COMPENSATING: Final = "compensating"
WAITING: Final = "waiting"
SKIPPED: Final = "skipped"
TIMED_OUT: Final = "timed_out"
REVOKED: Final = "revoked"
RETRIED: Final = "retried"
FELL_BACK: Final = "fell_back"
POSTPONED: Final = "postponed"
BREAKER: Final = "breaker"
HOOK_FAILED: Final = "hook_failed"
DEAD_LETTERED: Final = "dead_lettered"
REDRIVEN: Final = "redriven"
KEY_DROPPED: Final = "key_dropped"
DEAD_LETTER_DROPPED: Final = "dead_letter_dropped"
TAKEN_OVER: Final = "taken_over"
HANDED_BACK: Final = "handed_back"
LOST: Final = "lost"
ADOPTED: Final = "adopted"
SUSPENDED: Final = "suspended"
WAITS_FOR_EXTERNAL: Final = "waits_for_external"
COMPLETED_EXTERNALLY: Final = "completed_externally"
FAILED_EXTERNALLY: Final = "failed_externally"
LATE_ANSWER_REFUSED: Final = "late_answer_refused"
WOKEN: Final = "woken"
EVENT: Final = "event"
CHILD: Final = "child"
RECEIVED: Final = "received"
GIVEN_UP: Final = "given_up"
CONTINUED: Final = "continued"
SKIP: Final = "skip"
SET_RESULT: Final = "set_result"
LATE_RESULT_REFUSED: Final = "late_result_refused"


@dataclass(frozen=True)
class EntryType:
    name: str
    #: The transition whose transaction writes it (`rival_client.model.transitions`); None: it changes no status.
    transition: str | None = None
    #: What its detail can contain.
    fields: tuple[str, ...] = ()
    #: The status of the step after it; None: unchanged, or the detail has the steps that change.
    status: str | None = None
    #: The state of the step is what the entry has, also if it has none.
    sets_state: bool = False


def _entry(
    name: str, transition: str | None, fields: str, status: str | None = None, *, state: bool = False
) -> EntryType:
    return EntryType(name, transition, tuple(fields.split()), status, state)


_ENDED = "result state error end_order begun_after reused_from"

RUN_ENTRIES = (
    _entry(REQUESTED, None, ""),
    _entry(STARTED, "begin_run", "workflow version input options"),
    _entry(GATHERED, "gather_run", "n"),
    _entry(START_SKIPPED, None, "run_id"),
    _entry(EXPIRED, "expire_run", "deadline open"),
    _entry(QUEUED, "queue_run", "limit key"),
    _entry(FAILING, None, "error failed_step"),
    _entry(COMPLETED, "end_run", "result"),
    _entry(FAILED, "end_run", "result"),
    _entry(CANCELLING, "begin_cancel", "open error"),
    _entry(CANCELLED, "cancel_run", "open"),
    _entry(PAUSED, "pause_run", ""),
    _entry(RESUMED, "resume_run", ""),
    _entry(RETRY_RUN, "retry_run", "reason deleted revived opened"),
    _entry(REWIND_RUN, "rewind_run", "reason deleted revived opened"),
)
STEP_ENTRIES = (
    _entry(SCHEDULED, None, "kind queue priority", "pending"),
    _entry(CLAIMED, "claim_step", "attempt kind queue priority waited refused_by", "running"),
    _entry(QUEUED, "queue_step", "limit key run idempotency_key owner", "waiting"),
    _entry(UNQUEUED, "unqueue_step", "why", "pending"),
    _entry(OPENED, None, "kind", "waiting"),
    _entry(FANNED_OUT, None, "items"),
    _entry(COMPENSATING, None, "kind item", "waiting"),
    _entry(WAITING, None, "seconds run queue priority", "waiting"),
    _entry(COMPLETED, "finish_step", _ENDED, "completed", state=True),
    _entry(SKIPPED, "finish_step", _ENDED, "skipped", state=True),
    _entry(FAILED, "finish_step", _ENDED, "failed", state=True),
    _entry(TIMED_OUT, "time_out_finish", "error", "failed", state=True),
    _entry(EXPIRED, "expire_step", "error", "failed", state=True),
    _entry(REVOKED, "finish_step", "error", "failed", state=True),
    _entry(RETRIED, "retry_step", "attempt delay error budget_left", "waiting_retry", state=True),
    _entry(FELL_BACK, "fall_back", "fallback error", "waiting", state=True),
    _entry(POSTPONED, "postpone_step", "breaker seconds", "waiting_retry"),
    _entry(BREAKER, None, "name state"),
    _entry(HOOK_FAILED, None, "hook error"),
    _entry(DEAD_LETTERED, None, "error_type"),
    _entry(REDRIVEN, None, ""),
    _entry(DEAD_LETTER_DROPPED, None, ""),
    _entry(KEY_DROPPED, None, "key"),
    _entry(TAKEN_OVER, "take_over_step", "executor", "pending"),
    _entry(HANDED_BACK, "hand_back_step", "executor", "pending"),
    _entry(LOST, "finish_step", "error", "failed", state=True),
    _entry(ADOPTED, None, "executor"),
    _entry(CANCELLED, "cancel_below", "open"),
    _entry(SUSPENDED, "suspend_step", "seconds run", "waiting"),
    _entry(WAITS_FOR_EXTERNAL, "suspend_external_step", "deadline run", "waiting", state=True),
    _entry(COMPLETED_EXTERNALLY, "answer_step", "item", "pending"),
    _entry(FAILED_EXTERNALLY, "answer_step", "item", "pending"),
    _entry(LATE_ANSWER_REFUSED, None, "what_came"),
    _entry(WOKEN, "wake_step", "item", "pending"),
    _entry(EVENT, None, "topic key"),
    _entry(CHILD, None, "run_id workflow awaited"),
    _entry(RECEIVED, None, "end_order"),
    _entry(GIVEN_UP, "cancel_below", "kind", "cancelled"),
    _entry(CONTINUED, "suspend_step", "item", "pending"),
    _entry(SKIP, "settle_step", "reason was result", "skipped"),
    _entry(SET_RESULT, "settle_step", "reason was result", "completed"),
    _entry(LATE_RESULT_REFUSED, None, "attempt"),
)

#: The status of a step after an entry of that name.
STATUS_AFTER = {entry.name: entry.status for entry in STEP_ENTRIES if entry.status is not None}
#: After these, the state of the step is the one in the entry, or none.
SET_STATE = frozenset(entry.name for entry in STEP_ENTRIES if entry.sets_state)
#: Entries of operators that end a step.
SETTLED_BY_OPERATOR = frozenset(entry.name for entry in STEP_ENTRIES if entry.transition == "settle_step")
#: Entries that can name a step and concern the whole run: an operator has opened it again.
REOPENINGS = (RETRY_RUN, REWIND_RUN)
ENTRY_NAMES = frozenset(entry.name for entry in (*RUN_ENTRIES, *STEP_ENTRIES))
