"""Answers to external steps: the part of both clients that completes, fails and heartbeats them by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.model.checks import arguments
from rival_client.model.completion_token import CompletionToken
from rival_client.model.payload import Json, dump
from rival_client.sql import external_steps


class ExternalSteps(ClientBase):
    def complete_step(self, token: str, result: Any = None, *, by: str = "client") -> bool:
        """Complete an external step with this result; its run continues. `token` is the step's `ctx.completion_token`.
        False: the token is stale, since the step has ended or has started again.
        """
        return self._answer(token, external_steps.completed(result, self.settings.max_payload), by)

    def fail_step(
        self, token: str, error: str | BaseException | Mapping[str, Any], *, retry: bool = False, by: str = "client"
    ) -> bool:
        """Fail an external step. With `retry` it is retried while it has attempts left. False: as above."""
        return self._answer(token, external_steps.failed(error, retry, self.settings.max_payload), by)

    def heartbeat_step(self, token: str, progress: Any = None) -> bool:
        """Report that the external system still works on the step. False: the token is stale."""
        given = None if progress is None else dump(progress, what="the progress", limit=self.settings.max_payload)
        step = CompletionToken.parse(token)
        return self.database.transact(lambda own: external_steps.beat_external_step(own, step, given))

    def _answer(self, token: str, given: Mapping[str, Json], by: str) -> bool:
        step, by, grace = CompletionToken.parse(token), arguments.name("by", by), self.settings.ring_grace
        ready = self.database.transact(lambda own: external_steps.answer_step(own, step, given, by, grace))
        if ready is not None:
            self._doorbell.publish([ready.message])
        return ready is not None


class AsyncExternalSteps(AsyncClientBase):
    complete_step = awaitable(ExternalSteps.complete_step)
    fail_step = awaitable(ExternalSteps.fail_step)
    heartbeat_step = awaitable(ExternalSteps.heartbeat_step)
