"""`celery_step(send_mail, args=["{input.address}"])`: an existing Celery task as a step.

The task's body runs in this worker's process, under the step's policy; no message goes to the team's own broker.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from rival_workers.definition.options import TaskOptions
from rival_workers.definition.steps import PlanStep, StepSpec
from rival_workers.errors import StepError
from rival_workers.predefined.template_parts import Constant, Part, signature
from rival_workers.predefined.templates import parse


def celery_step(
    task: Any, *, args: Any = (), kwargs: Any = None, name: str | None = None, **options: Unpack[TaskOptions]
) -> PlanStep:
    """Its result is the task's, which must be JSON. `args` and `kwargs` may contain templates and functions.

    A retry that the task requests (`self.retry()`, `autoretry_for`) is a retry of the step, with the step's backoff and
    at most its `max_attempts`, if it has one. `Ignore` skips the step, `Reject` fails it. `options` are those of any
    step.
    """
    problems: list[str] = []
    task_name = getattr(task, "name", None)
    if not (hasattr(task, "run") and hasattr(task, "push_request") and isinstance(task_name, str)):
        problems.append(f"{task!r} is not a Celery task: give the task itself, as its app's decorator returns it")
        task_name = "celery_task"
    function = CeleryStep(
        task=task,
        args=_parsed(args, "args", Sequence, problems),
        kwargs=_parsed(kwargs or {}, "kwargs", Mapping, problems),
    )
    return StepSpec(
        function, {"name": name or task_name.rpartition(".")[2], **options}, tuple(problems), only_in_plans=True
    )


def _parsed(value: Any, where: str, kind: type, problems: list[str]) -> Part:
    if callable(value) or (isinstance(value, kind) and not isinstance(value, str)):
        return parse(value, where, problems)
    problems.append(f"option {where}: give a {'list' if kind is Sequence else 'dict'} or a function, not {value!r}")
    return Constant(value)


@dataclass(frozen=True, kw_only=True)
class CeleryStep:
    """The step's function."""

    task: Any
    args: Part
    kwargs: Part

    @property
    def __signature__(self) -> inspect.Signature:
        return signature((self.args, self.kwargs))

    def __call__(self, ctx: Any, **_named: Any) -> Any:
        # Only workers need Celery; a workflow file can be loaded without it.
        from rival_workers.runtime.celery.task_step import run_task

        args, kwargs = self.args.fill(ctx), self.kwargs.fill(ctx)
        if isinstance(args, str | Mapping) or not isinstance(args, Sequence) or not isinstance(kwargs, Mapping):
            raise StepError(f"task {self.task.name}: the functions for args and kwargs must return a list and a dict")
        return run_task(self.task, list(args), dict(kwargs), ctx.run, ctx.state)
