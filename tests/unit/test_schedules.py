"""A workflow's own schedule: written in its file or on the builder, and checked with the rest."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rival_client.model.cron import Rule
from rival_workers import DefinitionError, Schedule, create_workflow, register_workflow_file
from rival_workers.definition.registry import Registry
from tests.support.output import whole


class Night(BaseModel):
    region: str


def clean() -> int:
    return 1


def of_file(directory: Path, schedule: str) -> Any:
    file = directory / "nightly.py"
    file.write_text(f"from rival_workers import Schedule\ndef one(): return 1\n{schedule}\nsteps = [one]\n")
    return register_workflow_file(file, Registry())


def test_a_file_says_when_it_is_run(tmp_path: Path) -> None:
    assert of_file(tmp_path, 'schedule = "*/5 * * * *"').schedule.rule == Rule(cron="*/5 * * * *")


def test_a_file_says_it_with_options(tmp_path: Path) -> None:
    line = 'schedule = Schedule("0 2 * * *", timezone="Europe/Berlin", catch_up="last", input={"x": 1})'
    planned = of_file(tmp_path, line).schedule
    assert planned.rule == Rule(cron="0 2 * * *", timezone="Europe/Berlin")
    assert (planned.catch_up, planned.input) == ("last", '{"x":1}')


def test_a_bad_cron_expression_is_reported_with_its_file_line_and_cure(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as error:
        of_file(tmp_path, 'schedule = "61 * * * *"')
    [problem] = error.value.problems
    assert problem == (
        f"{tmp_path / 'nightly.py'}:3: workflow 'nightly': schedule: '61 * * * *' is not a valid cron expression (bad "
        'minute): write five fields as in "*/5 * * * *" (minute, hour, day of month, month, day of week).'
    )


def test_the_builder_says_the_same() -> None:
    built = create_workflow("w").input(Night).step(clean).schedule(dt.timedelta(hours=1), input=Night(region="eu"))
    planned = built.build().schedule
    assert planned is not None
    assert (planned.rule, planned.catch_up, planned.input) == (Rule(every=3600), "none", '{"region":"eu"}')


def test_a_schedule_has_the_options_of_its_runs(tmp_path: Path) -> None:
    options: Any = {"labels": {"by": "clock"}, "deadline": 60.0, "priority": "low"}
    options |= {"singleton": "one", "on_conflict": "queue"}
    rules: Any = [({"name": "one"}, {"timeout": 60.0})]
    of_builder = create_workflow("w").step(clean, name="one").schedule(60, **options, policies=rules).build().schedule
    line = f"schedule = Schedule(60, **{options!r}, policies={rules!r})"
    assert of_builder is not None
    assert of_builder.options == of_file(tmp_path, line).schedule.options
    stored = of_builder.options.given
    assert stored == options | {"policies": [[{"name": "one"}, {"timeout": 60.0}]], "policies_mode": "merge"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"singleton": "one"},
            (
                "…: workflow 'w': schedule: a tick whose singleton place is taken is skipped, or waits: give "
                '"skip" or "queue".'
            ),
        ),
        (
            {"priority": "urgent"},
            "…: workflow 'w': schedule: 'urgent' is not a priority: give one of high, normal, low.",
        ),
        (
            {"policies": [("a", {"timeout": -1})]},
            "…: workflow 'w': schedule: policies[0]: option timeout: Input should be greater than 0.",
        ),
        (
            {"policies": [("chrage", {"timeout": 1})]},
            (
                "…: workflow 'w': schedule: policies[0]: workflow 'w' has no step 'chrage' (did you mean "
                "'charge'?); it has charge"
            ),
        ),
    ],
)
def test_wrong_options_of_its_runs_are_reported_at_registration(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=whole(problem)):
        create_workflow("w").step(clean, name="charge").schedule(60, **options).build()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input": {"region": 7}}, "…: workflow 'w': schedule: region: Input should be a valid string"),
        ({}, "…: workflow 'w': schedule: Input should be a valid dictionary or instance of Night"),
        ({"input": {"region": object()}}, "…: workflow 'w': schedule: the input is not JSON: object is not JSON"),
        (
            {"input": {"region": "eu"}, "catch_up": "some"},
            "…: workflow 'w': schedule: 'some' is not one of 'none', 'last', 'all'.",
        ),
        (
            {"input": {"region": "eu"}, "timezone": "X/Y"},
            (
                "…: workflow 'w': schedule: 'X/Y' is not a time zone that is known here: write it as in "
                "'Europe/Berlin' (or install the package tzdata)."
            ),
        ),
    ],
)
def test_what_does_not_fit_is_reported_at_registration(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=whole(problem)):
        create_workflow("w").input(Night).step(clean).schedule("0 2 * * *", **options).build()


def test_another_time_does_not_change_the_version() -> None:
    versions = {create_workflow("w").step(clean).schedule(seconds).build().version for seconds in (60, 120)}
    assert versions == {create_workflow("w").step(clean).build().version}


def test_a_schedule_with_defaults_is_the_same_as_the_bare_time() -> None:
    assert Schedule("0 2 * * *") == Schedule("0 2 * * *", "UTC", "none", None)
