"""Which runs a list or a bulk verb selects: the filter, and the checks of its fields. The statements are in
`run_search`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from rival_client.model.checks import amounts, arguments
from rival_client.model.starts.labels import labels as checked_labels
from rival_client.model.statuses import RUN_STATUSES, RunStatus


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Selects runs. A field that is not given does not restrict the selection."""

    workflow: str | None = None
    #: One of them, or several.
    status: RunStatus | Sequence[RunStatus] | None = None
    #: When it was created: from `since` on, before `until`.
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    #: When it has ended.
    ended_since: dt.datetime | None = None
    ended_until: dt.datetime | None = None
    #: Fields that must be in it, with these values: `{"customer": {"id": 7}}`.
    input: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    #: A part of the error's type or message.
    error: str | None = None
    #: Whose children.
    parent: str | None = None
    #: Only paused runs, or only runs that are not paused.
    paused: bool | None = None
    #: Labels that it must have, with these values.
    labels: Mapping[str, Any] | None = None

    def checked(self) -> Self:
        """The same in plain values; InvalidArgument names the field that has a wrong type or value."""
        checks = {name: arguments.optional(check, name, getattr(self, name)) for name, check in _CHECKS.items()}
        return replace(self, **checks)


def given_statuses(argument: str, value: object) -> tuple[str, ...]:
    return arguments.statuses(argument, value, RUN_STATUSES)


def _part_of_error(argument: str, value: object) -> str:
    return arguments.text(argument, value, may_be_blank=True)


def _parent(argument: str, value: object) -> str:
    return arguments.run_id(value, argument)


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "workflow": arguments.name,
    "status": given_statuses,
    "since": amounts.moment,
    "until": amounts.moment,
    "ended_since": amounts.moment,
    "ended_until": amounts.moment,
    "input": arguments.fields,
    "result": arguments.fields,
    "error": _part_of_error,
    "parent": _parent,
    "paused": arguments.flag,
    "labels": checked_labels,
}
