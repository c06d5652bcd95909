"""Policies for operators: the part of both clients that sets rules of the fleet and explains options."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, arguments
from rival_client.model.policies.matchers import Matcher, every, in_workflow
from rival_client.model.policies.policy_explanation import PolicyExplanation
from rival_client.model.policies.policy_rules import Rule
from rival_client.model.policies.rulebook import FleetRule
from rival_client.model.policies.run_policies import one_rule
from rival_client.sql import fleet_rules


class PolicyOperations(ClientBase):
    def set_policy(
        self,
        match: str | Matcher | Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        workflow: str | None = None,
        reason: str | None = None,
        until: dt.datetime | float | dt.timedelta | None = None,
        by: str = "client",
    ) -> FleetRule:
        """Set a rule for the whole fleet: it overrides the options of every step that it matches, from the next attempt
        on, in every process within a second. `until`: a time, or seconds from now. The newest rule counts first.
        """
        rule, by = one_rule(match, options), arguments.name("by", by)
        if workflow is not None:
            narrowed = every(in_workflow(arguments.name("workflow", workflow)), rule.match)
            rule = Rule(narrowed, rule.options)
        reason = arguments.optional(arguments.text, "reason", reason)
        expires = None if until is None else _moment(until)

        def add(own: Connection) -> FleetRule | None:
            added = fleet_rules.set_rule(own, rule, reason, by, expires)
            if added is not None and added.expires_at is not None and added.expires_at <= added.created_at:
                raise InvalidArgument(
                    "until", f"{added.expires_at} has passed: give a later time, or seconds from now."
                )
            return added

        found = self.database.transact(add)
        if found is None:
            raise InvalidArgument("match", f"there are {fleet_rules.MAX_RULES} rules already: remove some.")
        return found

    def policies(self) -> list[FleetRule]:
        """The rules of the fleet that have not expired, the newest first."""
        with self.database.autocommit() as connection:
            return fleet_rules.list_rules(connection)

    def remove_policy(self, rule_id: int) -> bool:
        """False: the rule does not exist."""
        number = amounts.whole("rule_id", rule_id)
        return self.database.transact(lambda own: fleet_rules.remove_rule(own, number))

    def explain_policy(
        self, run_id: str, step: str, *, attempt: int | None = None, preview: bool = False
    ) -> PolicyExplanation:
        """Where the options of a step come from: in its last attempt, in an earlier `attempt`, or with `preview` in its
        next one. A step that has not begun has only a preview.
        """
        run_id, step = arguments.run_id(run_id), arguments.step(step)
        number = None if attempt is None else amounts.whole("attempt", attempt, 1)
        if number is not None and arguments.flag("preview", preview):
            raise InvalidArgument("preview", "it is about the next attempt: give either `attempt` or `preview`.")
        return self._operator.explain_policy(run_id, step, number, arguments.flag("preview", preview))


class AsyncPolicyOperations(AsyncClientBase):
    set_policy = awaitable(PolicyOperations.set_policy)
    policies = awaitable(PolicyOperations.policies)
    remove_policy = awaitable(PolicyOperations.remove_policy)
    explain_policy = awaitable(PolicyOperations.explain_policy)


def _moment(until: dt.datetime | float | dt.timedelta) -> dt.datetime | float:
    """A time, or seconds by the clock of the database."""
    return amounts.moment("until", until) if isinstance(until, dt.datetime) else amounts.seconds("until", until)
