"""Options of a workflow as a whole, as its file, its builder or its flow says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rival_workers import DefinitionError, Registry, create_workflow, flow, register_workflow_file
from rival_workers.definition.whole_run import WholeRun
from tests.support.output import whole


def clean() -> None: ...


def test_a_file_a_builder_and_a_flow_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text("def one(): return 1\nqueue = 'gpu'\npriority = 'low'\nsteps = [one]\n")

    @flow(queue="gpu", priority="low", registry=Registry())
    def its_flow(ctx: Any) -> None: ...

    assert its_flow.definition is not None
    built = create_workflow("w").step(clean).queue("gpu").priority("low").build()
    for workflow in (register_workflow_file(file, Registry()), built, its_flow.definition):
        assert (workflow.whole.queue, workflow.whole.priority) == ("gpu", "low")


def test_a_module_or_a_function_of_such_a_name_is_not_an_option(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text("import queue\ndef priority(): return queue.Queue\nsteps = [priority]\n")
    assert register_workflow_file(file, Registry()).whole == WholeRun()


def test_all_problems_are_named_at_once_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text("def one(): return 1\nqueue = 'two words'\npriority = 'urgent'\nretention = -1\nsteps = [one]\n")
    with pytest.raises(DefinitionError) as refused:
        register_workflow_file(file, Registry())
    assert refused.value.problems == [
        f"{file}:4: workflow 'w': retention: give seconds or a timedelta (0: for ever), not -1",
        f"{file}:2: workflow 'w': queue: give the name of a queue: 1 to 100 letters, digits or any of . : _ -, not "
        "'two words'",
        f"{file}:3: workflow 'w': priority: give one of high, normal, low, not 'urgent'",
    ]


@pytest.mark.parametrize("value", [7, "", None.__class__], ids=repr)
def test_a_queue_is_a_name(value: Any) -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "…: workflow 'w': queue: give the name of a queue: 1 to 100 letters, digits or any of . : _ -, not …"
        ),
    ):
        create_workflow("w").step(clean).queue(value).build()


@pytest.mark.parametrize("register", [True, False])
def test_an_unknown_option_of_a_flow_is_refused_with_those_that_there_are(register: bool) -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "…unknown option 'quee' (did you mean 'queue'?); known are input, description, on_error, policies, "
            "schedule, retention, concurrency_limit, rate_limit, hooks, queue, priority, compensate_on_cancel"
        ),
    ):
        flow("w", quee="x", register=register, registry=Registry())(clean)  # type: ignore[call-arg]


@pytest.mark.parametrize("option", ["timeout", "max_retries", "fallback", "compensate"])
def test_an_option_of_steps_is_refused_with_the_place_for_it(option: str) -> None:
    expected = (
        f"…: workflow 'w': {option} is an option of steps, not of a workflow: give it to the steps; for a flow as a "
        f"whole, write @step({option}=…) below @flow(…)"
    )
    with pytest.raises(DefinitionError, match=whole(expected)):
        flow("w", registry=Registry(), **{option: 1})(clean)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["circuit_breaker", "deadline"])
def test_an_option_that_flows_do_not_have_is_not_advised_for_them(option: str) -> None:
    expected = f"…: workflow 'w': {option} is an option of steps, not of a workflow: give it to the steps"
    with pytest.raises(DefinitionError, match=whole(expected)):
        flow("w", registry=Registry(), **{option: 1})(clean)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [None, clean, "clean", {"fn": clean}, 5])
def test_steps_are_a_list(steps: Any) -> None:
    with pytest.raises(DefinitionError, match=whole("workflow 'w': steps: give a list of steps, not …")):
        create_workflow("w").steps(steps)
