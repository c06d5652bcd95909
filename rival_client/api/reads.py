"""Reads of runs and workflows: the part of both clients that changes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.errors import DatabaseUnavailable, RunNotFound, UnknownWorkflow
from rival_client.model.checks import amounts, arguments
from rival_client.model.records import Run, RunResult, RunState
from rival_client.model.run_entries import HistoryEntry, LogEntry
from rival_client.model.run_node import RunNode
from rival_client.model.statuses import RUN_ACTIVE, RunStatus
from rival_client.model.why.explain import explain
from rival_client.model.why.why_facts import RunFacts
from rival_client.model.why.why_records import Why
from rival_client.model.why.worker_reasons import FOR_A_MESSAGE
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql import workflows
from rival_client.sql.reads import logs, run_cursor, run_family, run_reads, run_search, state_reads
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.history_reads import read_history
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.reads.run_search import Runs
from rival_client.sql.reads.why_reads import read_facts


def _limit(argument: str, value: object) -> int:
    return amounts.whole(argument, value, 1, amounts.MAX_LIMIT)


class RunReads(ClientBase):
    def result(self, run_id: str) -> RunResult:
        """How an ended run ended; RunNotEnded when it has not."""
        run_id = arguments.run_id(run_id)
        if self._prepared is not None:
            # A connection that the server has closed in the meantime: the other pool opens a new one.
            with suppress(DatabaseUnavailable):
                row = self._prepared.fetch(run_reads.READ_RESULT, {"id": run_id})
                if row is None:
                    raise RunNotFound(run_id)
                return run_reads.result_of(run_id, row)
        with self.database.snapshot() as connection:
            return run_reads.read_result(connection, run_id)

    def state(self, run_id: str, *, fold: int | None = None) -> RunState:
        """The run and its steps as they are now. With `fold`, for big runs: without results and items, and the items
        or iterations of a for_each or loop that has more than so many are only counted, in `folded`.
        """
        run_id, fold = arguments.run_id(run_id), arguments.optional(amounts.whole, "fold", fold)
        with self.database.snapshot() as connection:
            return state_reads.read_state(connection, run_id, fold)

    def history(
        self, run_id: str, *, after: int | None = None, limit: int | None = None, slim: bool = False
    ) -> list[HistoryEntry]:
        """The oldest entries first; the last entry's `id` as `after` gives what follows it. With `slim`, without values
        of users, whatever their size: inputs, results, items. RunNotFound if the run does not exist.
        """
        run_id, limit = arguments.run_id(run_id), arguments.optional(_limit, "limit", limit)
        after = None if after is None else amounts.whole("after", after, 0, amounts.MAX_BIGINT)
        with self.database.autocommit() as connection:
            found = read_history(connection, run_id, after=after, limit=limit, slim=arguments.flag("slim", slim))
            if not found:
                run_reads.read_run(connection, run_id)
            return found

    def why(self, run_id: str) -> Why:
        """Why the run is where it is: what each open step waits for, since when, until when, and what can end it."""
        run_id = arguments.run_id(run_id)
        with self.database.snapshot() as connection:
            facts = read_facts(connection, run_id)
        return self._explained(facts)

    def _explained(self, facts: RunFacts) -> Why:
        """The broker is asked only if a message is waited for, and after the transaction."""
        why = explain(facts)
        if any(one.what in FOR_A_MESSAGE for one in why.reasons) and self._doorbell.answers() is False:
            return explain(replace(facts, broker_away=True))
        return why

    def executors(self) -> list[ExecutorRecord]:
        """The processes that run attempts: those that are alive, and those whose attempts are not taken over yet."""
        with self.database.autocommit() as connection:
            return list_executors(connection)

    def logs(
        self,
        run_id: str,
        step: str | None = None,
        level: str | None = None,
        after: int | None = None,
        limit: int = logs.DEFAULT_LIMIT,
    ) -> list[LogEntry]:
        """What the run's steps have logged, the oldest first, also while they run. `step` with all below it, `level`
        and above; the last entry's `id` as `after` gives what follows it.
        """
        run_id, limit = arguments.run_id(run_id), amounts.limit(limit)
        step = None if step is None else arguments.step(step)
        level = None if level is None else arguments.choice("level", level, logs.LEVELS)
        after = None if after is None else amounts.whole("after", after, 0, amounts.MAX_BIGINT)
        with self.database.autocommit() as connection:
            return logs.read_logs(connection, run_id, step=step, level=level, after=after, limit=limit)

    def runs(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | Sequence[RunStatus] | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        ended_since: dt.datetime | None = None,
        ended_until: dt.datetime | None = None,
        input: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
        error: str | None = None,
        parent: str | None = None,
        paused: bool | None = None,
        labels: Mapping[str, Any] | None = None,
        before: Run | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Runs:
        """The newest runs first; give the page's `next` as `after` for the next page, or its last run as `before`.

        `status` may be several; `input` and `result` are fields that it must have, `error` a part of its text.
        """
        chosen = RunFilter(workflow=workflow, status=status, parent=parent, paused=paused, labels=labels)
        chosen = replace(chosen, since=since, until=until, ended_since=ended_since, ended_until=ended_until)
        chosen = replace(chosen, input=input, result=result, error=error).checked()
        behind, limit = run_cursor.cursor(before, after), amounts.limit(limit)
        with self.database.autocommit() as connection:
            return run_search.list_runs(connection, chosen, behind=behind, limit=limit)

    def active_runs(self, workflow: str | None = None, *, before: Run | None = None, limit: int = 50) -> Runs:
        """The runs that have not ended, the newest first."""
        return self.runs(workflow=workflow, status=RUN_ACTIVE, before=before, limit=limit)

    def tree(
        self, run_id: str, *, below: bool = False, depth: int = run_family.DEPTH, width: int = run_family.WIDTH
    ) -> RunNode:
        """The run's family, from its root ancestor down; with `below`, only the run and what it has started.

        Of each run at most `width` children, `depth` levels down; what is left out is counted, in `more`.
        """
        run_id, below = arguments.run_id(run_id), arguments.flag("below", below)
        depth = amounts.whole("depth", depth, 0, run_family.MAX_DEPTH)
        width = amounts.whole("width", width, 1, amounts.MAX_LIMIT)
        with self.database.snapshot() as connection:
            return run_family.read_tree(connection, run_id, below=below, depth=depth, width=width)

    def workflows(self) -> list[WorkflowInfo]:
        with self.database.autocommit() as connection:
            return workflows.list_workflows(connection)

    def versions(self, workflow: str) -> list[WorkflowInfo]:
        """All versions that workers have ever brought of a workflow; the one that new runs take first."""
        workflow = arguments.name("workflow", workflow)
        with self.database.autocommit() as connection:
            found = workflows.list_versions(connection, workflow)
            if not found:
                raise UnknownWorkflow(workflow, workflows.workflow_names(connection))
            return found


class AsyncRunReads(AsyncClientBase):
    result = awaitable(RunReads.result)
    state = awaitable(RunReads.state)
    history = awaitable(RunReads.history)
    why = awaitable(RunReads.why)
    executors = awaitable(RunReads.executors)
    logs = awaitable(RunReads.logs)
    runs = awaitable(RunReads.runs)
    active_runs = awaitable(RunReads.active_runs)
    tree = awaitable(RunReads.tree)
    workflows = awaitable(RunReads.workflows)
    versions = awaitable(RunReads.versions)
