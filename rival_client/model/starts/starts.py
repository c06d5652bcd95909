"""The start of runs as one value, which every insert of runs takes, on any kind of connection. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rival_client.model.payload import Json
from rival_client.model.starts.priorities import level_of
from rival_client.model.starts.queues import Route
from rival_client.model.starts.start_options import NO_OPTIONS, StartOptions
from rival_client.model.workflow_info import WorkflowInfo


@dataclass(frozen=True)
class Start:
    """Runs of one workflow that are started together."""

    workflow: WorkflowInfo
    #: The inputs by run id.
    inputs: Mapping[str, Json]
    options: StartOptions = NO_OPTIONS
    #: The run and the path of its checkpoint that starts them.
    parent: tuple[str, str] | None = None

    @property
    def is_plain(self) -> bool:
        """One run without options, as most are."""
        is_one = len(self.inputs) == 1 and self.options == NO_OPTIONS and self.parent is None
        return is_one and self.workflow.queue is None and self.workflow.priority is None

    @property
    def level(self) -> int | None:
        given = self.options.priority
        return level_of(self.workflow.priority if given is None else given)

    @property
    def route(self) -> Route:
        """Where their start messages go."""
        return Route(self.workflow.queue, self.level or 0)

    @property
    def run_id(self) -> str:
        """The id of the only run."""
        [run_id] = self.inputs
        return run_id

    def missing(self, created: Collection[str]) -> list[str]:
        """The runs that were not inserted."""
        return [run_id for run_id in self.inputs if run_id not in created]

    @property
    def may_queue(self) -> bool:
        """A run whose singleton place is taken waits."""
        return self.options.singleton is not None and self.options.on_conflict == "queue"

    def queued(self, created: Collection[str]) -> Start:
        """The runs that were not inserted, without the singleton place: each waits for the others."""
        waiting = {run_id: self.inputs[run_id] for run_id in self.missing(created)}
        return replace(self, inputs=waiting, options=replace(self.options, is_queued=True))

    def one(self, grace: float) -> dict[str, Any]:
        """The parameters of the statement that inserts one run without options."""
        [(run_id, its_input)] = self.inputs.items()
        return {**self._common(grace), "id": run_id, "input": its_input}

    def all(self, grace: float) -> dict[str, Any]:
        """The parameters of the statement that inserts all of them. `grace` 0: only the keeper publishes them."""
        parent_run_id, parent_path = self.parent or (None, None)
        order = self._insert_order
        return {
            **self._common(grace),
            **self.options.parameters(grace),
            "queue": self.workflow.queue,
            "priority": self.level,
            "parent_run_id": parent_run_id,
            "parent_path": parent_path,
            "ids": order,
            "inputs": [str(self.inputs[run_id]) for run_id in order],
            # Microseconds after the first one: runs with a singleton key begin in the order of their inputs.
            "places": [self._places[run_id] for run_id in order],
        }

    @property
    def _places(self) -> dict[str, int]:
        return {run_id: place for place, run_id in enumerate(self.inputs)}

    @property
    def _insert_order(self) -> list[str]:
        """Sorted, so that two inserts with ids in common cannot deadlock. Runs that take a singleton place stay in
        their order: the first one gets it, and inserts of others with the key wait for that one."""
        takes_place = self.options.singleton is not None and not self.options.is_queued
        return list(self.inputs) if takes_place else sorted(self.inputs)

    def _common(self, grace: float) -> dict[str, Any]:
        return {"workflow": self.workflow.name, "version": self.workflow.version, "grace": grace}
