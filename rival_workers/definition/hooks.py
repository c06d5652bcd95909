"""The hooks of a workflow: functions that a worker calls around attempts, and when a run has ended. They are not steps:
they run at most once, in the worker, and are not repeated after a crash.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

#: Around a call of a step's function, after the commit of its outcome, and after the end of the run.
OF_ATTEMPTS = ("before_attempt", "after_attempt", "on_retry", "on_timeout", "on_terminal", "on_checkpoint")
HOOKS = (
    *OF_ATTEMPTS,
    "on_success",
    "on_cancel",
    "on_end",
)
#: An error of `before_attempt` is the failure of the attempt.
STRICT = "strict"


@dataclass(frozen=True)
class HookEvent:
    """What a hook receives."""

    hook: str
    run_id: str
    workflow: str
    step: str
    attempt: int
    #: The outcome of the attempt, or the status of the run that has ended.
    outcome: str | None = None
    error: dict[str, Any] | None = None
    #: Seconds until the next attempt.
    delay: float | None = None
    #: The option `metadata` of the step.
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: The workflow and the step, with the option `telemetry_prefix` in front.
    label: str = ""


def read_hooks(given: Any, problems: list[str], known: Sequence[str] = HOOKS) -> dict[str, Any]:
    """The hooks that users give: a mapping of names to functions. `known`: a rule has those of attempts only."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        problems.append(f"hooks: give a dict of functions, such as {{'on_retry': function}}, not {given!r}")
        return {}
    for name, hook in given.items():
        if name == STRICT:
            if not isinstance(hook, bool):
                problems.append(f"hooks: strict is True or False, not {hook!r}")
        elif name in HOOKS and name not in known:
            problems.append(f"hooks: {name} is about the end of a run, not of a step: give it to the workflow's hooks")
        elif name not in known:
            close = get_close_matches(str(name), known, 1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            problems.append(f"hooks: unknown hook {name!r}{meant}; known are {', '.join((*known, STRICT))}")
        elif not callable(hook):
            problems.append(f"hooks: {name} must be a function, not {hook!r}")
        elif not _takes_an_event(hook):
            problems.append(f"hooks: {name} is called with one argument, the event: write def {_name(hook)}(event)")
    return dict(given)


def _takes_an_event(hook: Any) -> bool:
    try:
        inspect.signature(hook).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True  # a builtin does not say what it takes
    return True


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", type(hook).__name__)
