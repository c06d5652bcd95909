"""The schedule of a workflow in its file or builder: `schedule = "0 2 * * *"`, or with options."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rival_client.errors import InvalidPayload
from rival_client.model.cron import checked_rule
from rival_client.model.payload import DEFAULT_LIMIT, dump, load
from rival_client.model.policies.run_policies import GivenRule, PoliciesMode
from rival_client.model.starts.planned_schedules import CatchUp, Planned, checked_catch_up, checked_name
from rival_client.model.starts.priorities import Priority
from rival_client.model.starts.run_options import OnConflict
from rival_client.model.starts.start_options import StartOptions


@dataclass(frozen=True)
class Schedule:
    """A run at each time of a cron expression, or at an interval in seconds (or a timedelta)."""

    when: str | float | dt.timedelta
    timezone: str = "UTC"
    catch_up: CatchUp = "none"
    input: Any = None
    labels: Mapping[str, Any] | None = None
    deadline: float | dt.timedelta | None = None
    priority: Priority | None = None
    singleton: str | None = None
    #: What a tick does that finds the singleton place taken: "skip" or "queue".
    on_conflict: OnConflict | None = None
    #: Rules for the steps of its runs, as of `run(…, policies=…)`.
    policies: Sequence[GivenRule] | None = None
    policies_mode: PoliciesMode | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Those that `run` takes, too."""
        return {name: getattr(self, name) for name in _RUN_OPTIONS if getattr(self, name) is not None}


_RUN_OPTIONS = ("labels", "deadline", "priority", "singleton", "on_conflict", "policies", "policies_mode")


def planned_schedule(
    given: Any, workflow: str, read_input: Callable[[Any], Any] | None, problems: list[str]
) -> Planned | None:
    """The checked schedule; None, and an entry in `problems`, if it is invalid."""
    if given is None:
        return None
    schedule = given if isinstance(given, Schedule) else Schedule(given)
    try:
        checked_name(workflow)
        rule = checked_rule(schedule.when, schedule.timezone)
        catch_up = checked_catch_up(schedule.catch_up)
        its_input = dump(schedule.input, what="the input", limit=DEFAULT_LIMIT, is_input=True)
        if read_input is not None:
            read_input(load(its_input))
        options = StartOptions.of_schedule(schedule.options)
    except (ValueError, InvalidPayload) as error:
        problems.append(f"schedule: {getattr(error, 'problem', error)}")
        return None
    return Planned(rule, catch_up, its_input, options)
