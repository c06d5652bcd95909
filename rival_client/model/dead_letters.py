"""Dead letters as plain values: a step that waits for an operator, and which of them a verb selects."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Self

from rival_client.model.checks import amounts, arguments


@dataclass(frozen=True)
class DeadLetter:
    """A step with `on_failure="dead_letter"` that has failed."""

    run_id: str
    path: str
    workflow: str
    error_type: str
    message: str
    at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters. A field that is not given does not restrict the selection."""

    workflow: str | None = None
    run_id: str | None = None
    #: The path of the step, or its name at any depth.
    step: str | None = None
    #: A part of the error's type or message.
    error: str | None = None
    #: When the step failed: from `since` on, before `until`.
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def checked(self) -> Self:
        """The same in plain values; InvalidArgument names the field that has a wrong type or value."""
        return replace(
            self,
            workflow=arguments.optional(arguments.name, "workflow", self.workflow),
            run_id=None if self.run_id is None else arguments.run_id(self.run_id),
            step=None if self.step is None else arguments.step(self.step),
            error=arguments.optional(arguments.text, "error", self.error),
            since=arguments.optional(amounts.moment, "since", self.since),
            until=arguments.optional(amounts.moment, "until", self.until),
        )
