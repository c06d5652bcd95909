"""The schedule of a workflow in its file or builder: `schedule = "0 2 * * *"`, or with options."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rival_client.errors import InvalidPayload
from rival_client.model.cron import checked_rule
from rival_client.model.payload import DEFAULT_LIMIT, dump, load
from rival_client.model.starts.planned_schedules import CatchUp, Planned, checked_catch_up, checked_name
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
        options = StartOptions.of_schedule({"labels": schedule.labels, "deadline": schedule.deadline})
    except (ValueError, InvalidPayload) as error:
        problems.append(f"schedule: {getattr(error, 'problem', error)}")
        return None
    return Planned(rule, catch_up, its_input, options)
