"""The options of a start: labels, and when runs begin and must end. This module checks them; it has no I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rival_client.errors import InvalidArgument, did_you_mean
from rival_client.model.checks import amounts, argument_errors, arguments
from rival_client.model.limits.singletons import with_singleton
from rival_client.model.payload import serialise
from rival_client.model.policies.option_fields import FIELDS
from rival_client.model.policies.plan_rules import misplaced_options, nodes_of, unknown_steps
from rival_client.model.policies.run_policies import NOT_IN_RULES, PoliciesMode, RunPolicies, run_policies
from rival_client.model.starts.gathering import Gathering, batch_size
from rival_client.model.starts.labels import labels
from rival_client.model.starts.priorities import priority
from rival_client.model.starts.run_options import ON_CONFLICT, OnConflict
from rival_client.model.timers import NEAR, is_near
from rival_client.model.workflow_info import WorkflowInfo


def _mode(argument: str, value: object) -> PoliciesMode:
    if value not in ("merge", "replace"):
        raise argument_errors.invalid(argument, value, "'merge' or 'replace'")
    return "replace" if value == "replace" else "merge"


def _deadline(argument: str, value: object) -> float | dt.datetime:
    if isinstance(value, dt.datetime):
        return amounts.moment(argument, value)
    return amounts.seconds(argument, value, least=0.001)


def _positive(argument: str, value: object) -> float:
    return amounts.seconds(argument, value, least=0.001)


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "labels": labels,
    "delay": amounts.seconds,
    "scheduled_at": amounts.moment,
    "deadline": _deadline,
    "priority": priority,
    "singleton": lambda argument, value: arguments.key(value, argument),
    "on_conflict": lambda argument, value: arguments.choice(argument, value, ON_CONFLICT),
    "debounce": _positive,
    "max_wait": _positive,
    "collect": arguments.flag,
    "batch": batch_size,
    "within": _positive,
    "key": lambda argument, value: arguments.key(value, argument),
    "policies": run_policies,
    "policies_mode": _mode,
}
_GATHERING = ("debounce", "max_wait", "collect", "batch", "within", "key")


@dataclass(frozen=True)
class StartOptions:
    """Checked options. All runs of a `run_many` have the same."""

    labels: Mapping[str, str] | None = None
    #: Seconds before it begins, or the time at which it does.
    delay: float | None = None
    scheduled_at: dt.datetime | None = None
    #: Seconds from when it begins at the earliest, or the time by which it must have ended.
    deadline: float | dt.datetime | None = None
    #: None: that of the workflow.
    priority: str | None = None
    #: The singleton key, and what a start does that finds its place taken.
    singleton: str | None = None
    on_conflict: OnConflict = "return"
    #: The place was taken: the run begins when no other one with its key runs.
    is_queued: bool = field(default=False, kw_only=True)
    #: The start may become part of a run that has not begun.
    gathering: Gathering | None = None
    #: Rules for its steps.
    policies: RunPolicies | None = None
    #: The deadline of its parent, which is also its own.
    until: dt.datetime | None = field(default=None, kw_only=True)
    #: Seconds until it begins, by the clock of the process that starts it. The database's clock decides.
    countdown: float = field(default=0.0, kw_only=True)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """InvalidArgument names the first option that is unknown, or has a wrong type or value."""
        if not given:
            return cls()
        checked = _checked(given)
        gathering = Gathering.of(checked)
        plain = {name: value for name, value in checked.items() if value is not None and name not in _GATHERING}
        wait = _countdown(checked.get("delay"), checked.get("scheduled_at")) if gathering is None else gathering.wait
        return cls(**plain, gathering=gathering, countdown=wait)

    @classmethod
    def of_schedule(cls, given: Mapping[str, Any]) -> Self:
        """A schedule has times of its own."""
        for name in ("delay", "scheduled_at"):
            if given.get(name) is not None:
                raise InvalidArgument(name, "a schedule says when its runs begin: leave it out.")
        if isinstance(given.get("deadline"), dt.datetime):
            raise InvalidArgument("deadline", "give the runs of a schedule seconds, not one point in time.")
        options = cls.of(given)
        options.refuse_gathering("of a schedule: each tick is a run")
        if options.singleton is not None and given.get("on_conflict") not in ("skip", "queue"):
            advice = 'a tick whose singleton place is taken is skipped, or waits: give "skip" or "queue".'
            raise InvalidArgument("on_conflict", advice)
        return options

    def refuse_gathering(self, why: str) -> None:
        if self.gathering is not None:
            raise InvalidArgument("debounce" if self.gathering.postpones else "batch", f"not {why}.")

    def check_steps(self, workflow: WorkflowInfo) -> None:
        """InvalidArgument if a rule names a step that the workflow does not have, or an option that a step that it
        matches cannot have."""
        if self.policies is None:
            return
        nodes, rules = [replace(one, labels=self.labels or {}) for one in nodes_of(workflow)], self.policies.rules
        problems = unknown_steps(rules, nodes, workflow.name) + misplaced_options(rules, nodes, workflow.name)
        if problems:
            raise InvalidArgument("policies", "; ".join(problems) + ".")

    @property
    def given(self) -> dict[str, Any] | None:
        """The options as JSON, in the form that `of_schedule` reads; None if there are none."""
        values: dict[str, Any] = {"labels": self.labels, "deadline": self.deadline, "priority": self.priority}
        values["singleton"] = self.singleton
        if self.singleton is not None:
            values["on_conflict"] = self.on_conflict
        if self.policies is not None:
            rules = [[rule.match.dump(), dict(rule.options)] for rule in self.policies.rules]
            values |= {"policies": rules, "policies_mode": self.policies.mode}
        return {name: value for name, value in values.items() if value is not None} or None

    def is_published(self, grace: float) -> bool:
        """Whether the process that starts it publishes its message: with a countdown, unless it begins much later."""
        return grace > 0 and is_near(self.countdown, NEAR)

    def parameters(self, grace: float) -> dict[str, Any]:
        """The parameters of the inserting statement. Times are text: a prepared statement takes no other values."""
        is_moment = isinstance(self.deadline, dt.datetime)
        return {
            "labels": None if self.labels is None else serialise(self.labels),
            "policies": self._stored_policies(),
            "delay": self.delay,
            "scheduled_at": _text(self.scheduled_at),
            "deadline": None if is_moment else self.deadline,
            "deadline_at": _text(self.deadline) if is_moment else None,  # type: ignore[arg-type]
            "until": _text(self.until),
            "published": int(self.is_published(grace)),
            "singleton": None if self.is_queued else self.singleton,
        }

    def _stored_policies(self) -> str | None:
        rules = None if self.policies is None else self.policies.dump()
        if self.singleton is None:
            return None if rules is None else serialise(rules)
        goes_first = self.on_conflict == "cancel"
        return serialise(with_singleton(rules or RunPolicies().dump(), self.singleton, goes_first=goes_first))


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in _CHECKS:
            raise InvalidArgument(name, _unknown(name, given[name]))
    checked = {name: arguments.optional(_CHECKS[name], name, value) for name, value in given.items()}
    if checked.get("delay") is not None and checked.get("scheduled_at") is not None:
        raise InvalidArgument("scheduled_at", "give either `delay` or `scheduled_at`: each says when it begins.")
    if checked.get("on_conflict") is not None and checked.get("singleton") is None:
        raise InvalidArgument("on_conflict", "it says what happens if `singleton` is taken: give that too.")
    return checked | _with_mode(checked.pop("policies_mode", None), checked.get("policies"))


def _unknown(name: str, value: Any) -> str:
    if name in NOT_IN_RULES:
        return "it is an option of workflows and their steps, not of one run."
    if name in FIELDS:
        rule = f"(default, {{{name!r}: {argument_errors.shown(value)}}})"
        return f"it is an option of steps: give policies=[{rule}], with default or the name of a step."
    return f"unknown option{did_you_mean(name, _CHECKS)}."


def _with_mode(mode: PoliciesMode | None, policies: RunPolicies | None) -> dict[str, Any]:
    if mode is None:
        return {}
    if policies is None:
        raise InvalidArgument("policies_mode", "it says how `policies` apply: give them, too.")
    return {"policies": replace(policies, mode=mode)}


def _countdown(delay: float | None, scheduled_at: dt.datetime | None) -> float:
    if scheduled_at is not None:
        return max(0.0, (scheduled_at - dt.datetime.now(dt.UTC)).total_seconds())
    return delay or 0.0


def _text(at: dt.datetime | None) -> str | None:
    return None if at is None else at.isoformat()


NO_OPTIONS = StartOptions()
