"""The options of a start, as types for type checkers. `StartOptions` checks the values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

from rival_client.model.policies.run_policies import GivenRule, PoliciesMode
from rival_client.model.starts.priorities import Priority

OnConflict = Literal["return", "skip", "cancel", "queue"]
ON_CONFLICT = get_args(OnConflict)
#: Seconds, or a timedelta.
Duration = float | dt.timedelta


class CommonOptions(TypedDict, total=False):
    """Also of the schedule that a workflow defines."""

    labels: Mapping[str, Any] | None
    priority: Priority | None
    singleton: str | None
    on_conflict: OnConflict | None
    policies: Sequence[GivenRule] | None
    policies_mode: PoliciesMode | None


class RunOptions(CommonOptions, total=False):
    """The options of a start, for type checkers: of `run`, `run_many`, `schedule`, `ctx.call` and `ctx.spawn`."""

    delay: Duration | None
    scheduled_at: dt.datetime | None
    deadline: Duration | dt.datetime | None
    debounce: Duration | None
    max_wait: Duration | None
    collect: bool | None
    batch: int | None
    within: Duration | None
    key: str | None
