"""Runs the body of an existing Celery task as a step. Celery's Retry, Reject and Ignore become outcomes of the step."""

from __future__ import annotations

from typing import Any

from celery.app.trace import _install_stack_protection, task_has_custom
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry

from rival_workers.errors import StepError
from rival_workers.runtime.attempt.context import RunInfo, StepState


def run_task(task: Any, args: list[Any], kwargs: dict[str, Any], run: RunInfo, state: StepState) -> Any:
    """Calls the task like `task.apply()`, so that a retry is raised and not published."""
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
