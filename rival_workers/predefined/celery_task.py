"""`celery_step(send_mail, args=["{input.address}"])`: an existing Celery task as a step.

The task's body runs in this worker's process, under the step's policy; no message goes to the team's own broker.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from rival_workers.definition.options import TaskOptions
from rival_workers.definition.steps import PlanStep, StepSpec
from rival_workers.errors import StepError
from rival_workers.predefined.template_parts import Constant, Part, signature
from rival_workers.predefined.templates import parse

if TYPE_CHECKING:
    from rival_workers.runtime.attempt.context import RunInfo, StepState


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
        args, kwargs = self.args.fill(ctx), self.kwargs.fill(ctx)
        if isinstance(args, str | Mapping) or not isinstance(args, Sequence) or not isinstance(kwargs, Mapping):
            raise StepError(f"task {self.task.name}: the functions for args and kwargs must return a list and a dict")
        return _run_task(self.task, list(args), dict(kwargs), ctx.run, ctx.state)


# -- calling the task -------------------------------------------------------------------------------------


def _run_task(task: Any, args: list[Any], kwargs: dict[str, Any], run: RunInfo, state: StepState) -> Any:
    """Call the task like `task.apply()`, so that a retry is raised and not published. Celery's Retry, Reject and Ignore
    become outcomes of the step."""
    # Only workers need Celery; a workflow file can be loaded without it.
    from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

    task.push_request(**_request(args, kwargs, run))
    try:
        return _body(task)(*args, **kwargs)
    except Retry as wish:
        text = f"task {task.name} asks to be tried again{_because(wish.exc)}"
        raise StepError(text, behavior="retry", max_attempts=run.attempt + 1) from wish.exc
    except MaxRetriesExceededError:
        # Celery's own message contains the task's arguments.
        raise StepError(f"task {task.name} has been retried as often as its max_retries allows") from None
    except Reject as refusal:
        raise StepError(f"task {task.name} has rejected its work{_because(refusal.reason)}") from None
    except Ignore:
        state.skipped = True
        return None
    finally:
        task.pop_request()


def _body(task: Any) -> Any:
    """A custom `__call__` of the task class has precedence, as in any Celery worker."""
    from celery.app.trace import _install_stack_protection, task_has_custom

    if not task_has_custom(task, "__call__"):
        return task.run
    # Otherwise Celery's own `__call__`, which the custom one calls, would hide the request.
    _install_stack_protection()
    return task


def _request(args: list[Any], kwargs: dict[str, Any], run: RunInfo) -> dict[str, Any]:
    """`self.request`. An eager task does not publish its retries."""
    return {
        "id": f"{run.run_id}:{run.step}:{run.attempt}",
        "root_id": run.run_id,
        "retries": run.attempt - 1,
        "args": args,
        "kwargs": kwargs,
        "is_eager": True,
        "called_directly": False,
        "delivery_info": {"is_eager": True},
    }


def _because(reason: Any) -> str:
    if isinstance(reason, BaseException):
        return f": {type(reason).__name__}: {reason}"
    return f": {reason}" if reason else ""
