"""Every type of history entry: its fields, the transition that writes it, and what a step is after it.

`rebuild` reads the statuses from here, and a test compares the list with docs/reference/history.md and with the entries
that the code writes.
"""

from __future__ import annotations

from dataclasses import dataclass


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


_ENDED = "result state error end_order begun_after"

RUN_ENTRIES = (
    _entry("started", "begin_run", "workflow version input"),
    _entry("failing", None, "error failed_step"),
    _entry("completed", "end_run", "result"),
    _entry("failed", "end_run", "result"),
    _entry("cancelled", "cancel_run", "open"),
    _entry("paused", "pause_run", ""),
    _entry("resumed", "resume_run", ""),
    _entry("retry_run", "retry_run", "reason undone revived opened"),
    _entry("rewind_run", "rewind_run", "reason undone revived opened"),
)
STEP_ENTRIES = (
    _entry("scheduled", None, "kind", "pending"),
    _entry("claimed", "claim_step", "attempt kind", "running"),
    _entry("opened", None, "kind", "waiting"),
    _entry("fanned_out", None, "items"),
    _entry("compensating", None, "kind item", "waiting"),
    _entry("waiting", None, "seconds run", "waiting"),
    _entry("completed", "finish_step", _ENDED, "completed", state=True),
    _entry("skipped", "finish_step", _ENDED, "skipped", state=True),
    _entry("failed", "finish_step", _ENDED, "failed", state=True),
    _entry("timed_out", "time_out_finish", "error", "failed", state=True),
    _entry("revoked", "finish_step", "error", "failed", state=True),
    _entry("retried", "retry_step", "attempt delay error", "waiting_retry", state=True),
    _entry("taken_over", "release_step", "executor", "pending"),
    _entry("handed_back", "release_step", "executor", "pending"),
    _entry("lost", "finish_step", "error", "failed", state=True),
    _entry("adopted", None, "executor"),
    _entry("cancelled", "cancel_below", "open"),
    _entry("suspended", "suspend_step", "seconds run", "waiting"),
    _entry("waits_for_external", "suspend_step", "deadline run", "waiting", state=True),
    _entry("completed_externally", "answer_step", "item", "pending"),
    _entry("failed_externally", "answer_step", "item", "pending"),
    _entry("late_answer_refused", None, "what_came"),
    _entry("resumed", "wake_step", "item", "pending"),
    _entry("event", None, "topic key"),
    _entry("child", None, "run_id workflow awaited"),
    _entry("received", None, "end_order"),
    _entry("given_up", "cancel_below", "kind", "cancelled"),
    _entry("continued", "suspend_step", "item", "pending"),
    _entry("skip", "settle_step", "reason was result", "skipped"),
    _entry("set_result", "settle_step", "reason was result", "completed"),
    _entry("late_result_refused", None, "attempt"),
)

#: What a step is after an entry of that name.
STATUS_AFTER = {entry.name: entry.status for entry in STEP_ENTRIES if entry.status is not None}
#: After these, the state of the step is the one in the entry, or none.
SET_STATE = frozenset(entry.name for entry in STEP_ENTRIES if entry.sets_state)
#: Entries of operators that end a step.
SETTLED_BY_OPERATOR = frozenset(entry.name for entry in STEP_ENTRIES if entry.transition == "settle_step")
#: Entries that can name a step and concern the whole run: an operator has opened it again.
REOPENINGS = ("retry_run", "rewind_run")
ENTRY_NAMES = frozenset(entry.name for entry in (*RUN_ENTRIES, *STEP_ENTRIES))
