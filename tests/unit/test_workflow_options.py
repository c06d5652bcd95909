"""Options of a workflow as a whole, as its file, its builder or its flow says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rival_workers import DefinitionError, Registry, create_workflow, flow, register_workflow_file
from rival_workers.definition.whole_run import WholeRun


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
    problems = refused.value.problems
    assert [problem.split(": ")[2] for problem in problems] == ["retention", "queue", "priority"]
    assert [f"w.py:{line}" in problem for line, problem in zip((4, 2, 3), problems, strict=True)] == [True] * 3


@pytest.mark.parametrize("value", [7, "", None.__class__], ids=repr)
def test_a_queue_is_a_name(value: Any) -> None:
    with pytest.raises(DefinitionError, match="queue: give the name of a queue"):
        create_workflow("w").step(clean).queue(value).build()
