"""Runs the body of a team's own Celery task as a step. What it asks Celery for becomes what a step can ask for."""

from __future__ import annotations

from typing import Any

from celery.app.trace import _install_stack_protection, task_has_custom
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

from rival_workers.errors import StepError
from rival_workers.runtime.attempt.context import RunInfo, StepState


def run_task(task: Any, args: list[Any], kwargs: dict[str, Any], run: RunInfo, state: StepState) -> Any:
    """As `task.apply()` would call it, so that a retry is raised and not sent."""
    task.push_request(**_request(args, kwargs, run))
    try:
        return _body(task)(*args, **kwargs)
    except Retry as wish:
        raise StepError(f"task {task.name} asks to be tried again{_because(wish.exc)}",
                        behavior="retry", max_attempts=run.attempt + 1) from wish.exc  # fmt: skip
    except MaxRetriesExceededError:
        # Celery's own text has the task's arguments in it.
        raise StepError(f"task {task.name} has been retried as often as its max_retries allows") from None
    except Reject as refusal:
        raise StepError(f"task {task.name} has rejected its work{_because(refusal.reason)}") from None
    except Ignore:
        state.skipped = True
        return None
    finally:
        task.pop_request()


def _body(task: Any) -> Any:
    """A task class's own `__call__` comes first, as it does in any worker."""
    if not task_has_custom(task, "__call__"):
        return task.run
    # Without it Celery's `__call__`, which it calls in turn, would hide the request.
    _install_stack_protection()
    return task


def _request(args: list[Any], kwargs: dict[str, Any], run: RunInfo) -> dict[str, Any]:
    """`self.request`. Eager is what Celery calls a task whose retries are not for a broker."""
    return {
        "id": f"{run.run_id}:{run.step}:{run.attempt}", "root_id": run.run_id, "retries": run.attempt - 1, "args": args,
        "kwargs": kwargs, "is_eager": True, "called_directly": False, "delivery_info": {"is_eager": True},
    }  # fmt: skip


def _because(reason: Any) -> str:
    if isinstance(reason, BaseException):
        return f": {type(reason).__name__}: {reason}"
    return f": {reason}" if reason else ""
