"""A run in the tree of its family, as a plain value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rival_client.model.statuses import RunStatus


@dataclass(frozen=True)
class RunNode:
    """A run within its family, with the child runs that it has started, the oldest first."""

    run_id: str
    workflow: str
    version: str
    status: RunStatus
    failed_step: str | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    completed_at: dt.datetime | None
    paused_at: dt.datetime | None
    parent_run_id: str | None
    #: The step of the parent that has started it.
    parent_path: str | None
    children: tuple[RunNode, ...] = ()
    #: Children that are not among these: status -> how many.
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_awaited(self) -> bool | None:
        """Whether its parent waits for it, or has. None: it has no parent."""
        if self.parent_path is None:
            return None
        # A flow names its checkpoints like this: `order/call:billing`, `order/spawn:newsletter~2`.
        return self.parent_path.rpartition("/")[2].startswith("call:")

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end."""
        if self.started_at is None or self.completed_at is None:
            return None
        return (self.completed_at - self.started_at).total_seconds()

    def walk(self) -> Iterator[RunNode]:
        """It and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()
