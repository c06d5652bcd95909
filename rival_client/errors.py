"""Every error a producer can meet. Each message says what happened, to which run, and what to do.

RivalError
├── ConfigurationError        a setting is missing or makes no sense
│   └── InvalidSetting        a setting has a value that cannot be used; `.variable` names it
├── InvalidArgument           an argument has a wrong type or value; also a ValueError
├── UnknownWorkflow           no worker has registered that name
├── UnknownLimit              no limit has that name
├── UnknownSchedule           no schedule has that name
├── InvalidInput              the input does not fit the workflow's schema; `.problems` lists all of it
├── InvalidPayload            a value is not JSON, or too large
├── InvalidToken              not a token of an external step
├── RunConflict               that run id exists with another workflow or another input
├── EventConflict            that event id exists with another topic, key or run
├── RunNotFound
├── NotPossible               an operator's verb does not fit the run as it is; nothing was changed
│   └── RunHasMoved           the run has changed since the operator looked at it
├── RunNotEnded               the run has no result yet
├── TopicFull                 the topic keeps as many events as it may; nothing was sent
├── WaitTimeout               the run has not ended within the timeout
├── RunFailed                 raised by `RunResult.unwrap()`
│   └── RunCancelled
└── DatabaseError             the database could not do what was asked
    ├── DatabaseUnavailable   it did not answer, or takes no work now (read-only, full, shutting down)
    ├── DatabaseBusy          other transactions were in the way, repeatedly; nothing was changed
    └── DatabaseRefused       it has rejected a statement: privileges, schema, values; nothing was changed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

#: Names that an error lists.
_MANY = 20
#: Characters of what is wrong with an argument that its error shows.
_LONG = 4000


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A hint at the name that was probably meant, also if case or punctuation differ; empty if there is none."""
    plain = {_letters(one): one for one in known}
    close = get_close_matches(_letters(str(name)[:200]), list(plain), 1)
    return f" (did you mean {plain[close[0]]!r}?)" if close else ""


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY:,} more" if len(names) > _MANY else "")


def _letters(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


#: Of an input with very many problems the message names these; `.problems` has all.
_PROBLEMS_SHOWN = 20


class RivalError(Exception):
    """The root of everything Rival raises."""


class ConfigurationError(RivalError):
    pass


class InvalidSetting(ConfigurationError):
    """`variable` names it in the environment. `shown`: the value, short and without secrets."""

    def __init__(self, variable: str, shown: str, expected: str) -> None:
        super().__init__(f"{variable}={shown} is not {expected}.")
        self.variable, self.expected = variable, expected


class InvalidArgument(RivalError, ValueError):
    """`argument` names it. The message shows a short form of the value, and says what to give instead."""

    def __init__(self, argument: str, problem: str) -> None:
        if len(problem) > _LONG:
            problem = f"{problem[:_LONG]} … and {len(problem) - _LONG:,} more characters"
        super().__init__(f"Invalid argument {argument}: {problem}")
        self.argument, self.problem = argument, problem


class UnknownWorkflow(RivalError):
    def __init__(self, workflow: str, known: Iterable[str]) -> None:
        names = sorted(known)
        hint = did_you_mean(workflow, names)
        super().__init__(
            f"No workflow named {workflow!r} is registered{hint}. Known workflows: {listed(names) or 'none'}. "
            "Workflows register when a worker that has them starts: `rival worker --workflows PATH`."
        )
        self.workflow = workflow


class UnknownLimit(RivalError):
    def __init__(self, limit: str, known: Iterable[str]) -> None:
        hint = did_you_mean(limit, known)
        super().__init__(f"Unknown limit {limit!r}{hint}. `rival limit ls` lists them.")
        self.limit = limit


class UnknownSchedule(RivalError):
    def __init__(self, schedule: str, known: Iterable[str]) -> None:
        hint = did_you_mean(schedule, known)
        super().__init__(f"Unknown schedule {schedule!r}{hint}. `rival schedule ls` lists them.")
        self.schedule = schedule


@dataclass(frozen=True)
class InputProblem:
    """One thing that does not fit: `pointer` is the place in the input, as a JSON pointer."""

    pointer: str
    message: str
    #: Both, for people: `lines.1.count: 0 is less than the minimum of 1`.
    text: str


class InvalidInput(RivalError):
    """`found` has the place of each problem, `problems` the same as text."""

    def __init__(
        self,
        workflow: str,
        problems: Sequence[str | InputProblem],
        *,
        started_run: str | None = None,
        is_nested: bool = False,
        not_done: str = "no run was started",
    ) -> None:
        """`started_run`: a worker found the problems, after the start. `is_nested`: the workflow is a step of a run.
        `not_done`: what did not happen because of them."""
        texts = [one if isinstance(one, str) else one.text for one in problems]
        lines = "\n".join(f"  - {text}" for text in texts[:_PROBLEMS_SHOWN])
        if len(texts) > _PROBLEMS_SHOWN:
            lines += f"\n  and {len(texts) - _PROBLEMS_SHOWN:,} more"
        what = f"The input does not fit workflow {workflow!r}; {not_done}"
        if is_nested:
            what = f"The input does not fit nested workflow {workflow!r}; none of its steps was started"
        if started_run is not None:
            what = f"The input of run {started_run!r} does not fit the model of workflow {workflow!r} on its worker"
        super().__init__(f"{what}:\n{lines}")
        self.workflow = workflow
        self.problems = texts
        self.found = [one if isinstance(one, InputProblem) else InputProblem("", one, one) for one in problems]


class InvalidPayload(RivalError):
    pass


class InvalidToken(RivalError):
    def __init__(self) -> None:
        super().__init__(
            "This is not a token of an external step, or only a part of one. Give the whole text that "
            "`ctx.completion_token` has handed out; it begins with rvl_."
        )


class RunConflict(RivalError):
    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"Run {run_id!r} exists already, {why}. Use another run id, or none to have one made.")
        self.run_id = run_id


class EventConflict(RivalError):
    def __init__(self, event_id: str, topic: str) -> None:
        super().__init__(
            f"Event {event_id!r} exists already, with another topic, key or run: this one, of topic {topic!r}, was not "
            "sent. Ids of events are unique in all topics: put the topic in front of an id from elsewhere, as in "
            f'event_id=f"{{topic}}:{{order_id}}".'
        )
        self.event_id, self.topic = event_id, topic


class RunNotFound(RivalError):
    def __init__(self, run_id: str, workflow: str | None = None) -> None:
        of = f" of workflow {workflow!r}" if workflow else ""
        super().__init__(f"Unknown run {run_id!r}{of}. `rival ls` lists the runs.")
        self.run_id = run_id


class RunNotEnded(RivalError):
    def __init__(self, run_id: str, workflow: str, status: str) -> None:
        super().__init__(
            f"Run {run_id!r} of workflow {workflow!r} is {status}: it has no result yet. Wait for it "
            f"(`rival.wait({run_id!r})`), or look at its `state`."
        )
        self.run_id, self.workflow, self.status = run_id, workflow, status


class NotPossible(RivalError):
    def __init__(self, verb: str, run_id: str, why: str) -> None:
        super().__init__(f"Cannot {verb} run {run_id!r}: {why}. Nothing was changed.")
        self.verb, self.run_id = verb, run_id


class RunHasMoved(NotPossible):
    def __init__(self, run_id: str, entry: int) -> None:
        RivalError.__init__(
            self,
            f"Run {run_id!r} has moved since entry {entry} of its history: look at it again. Nothing was changed.",
        )
        self.verb, self.run_id, self.entry = "change", run_id, entry


class TopicFull(RivalError):
    def __init__(self, topic: str, bound: int) -> None:
        super().__init__(
            f"Topic {topic!r} keeps {bound:,} events that no run has received: this one was not sent. Start what "
            "waits for them, send with a shorter `expires`, or raise RIVAL_MAX_EVENTS_PER_TOPIC (0: no bound). "
            f"`rival events --topic {topic}` lists them."
        )
        self.topic, self.bound = topic, bound


class WaitTimeout(RivalError, TimeoutError):
    def __init__(self, workflow: str, run_id: str, timeout: float, status: str) -> None:
        super().__init__(
            f"Run {run_id!r} of workflow {workflow!r} was still {status} after {timeout:g} s. "
            "It continues: wait again, or cancel it."
        )
        self.workflow, self.run_id, self.timeout, self.status = workflow, run_id, timeout, status


class RunFailed(RivalError):
    """`error`: the run's error as `RunResult.error` has it; `type`, `message` and `cause` are taken from it."""

    def __init__(self, run_id: str, workflow: str, failed_step: str | None, error: dict[str, Any]) -> None:
        at = f" at step {failed_step!r}" if failed_step else ""
        self.type, self.message = error.get("type", "Error"), error.get("message", "")
        super().__init__(
            f"Run {run_id!r} of workflow {workflow!r} failed{at}: {self.type}: {self.message}".rstrip(" :")
        )
        self.run_id, self.workflow, self.failed_step = run_id, workflow, failed_step
        self.error: dict[str, Any] | None = error
        #: The error that this one followed from, such as that of the last attempt when no retry was left.
        self.cause: dict[str, Any] | None = error.get("cause")


class RunCancelled(RunFailed):
    def __init__(self, run_id: str, workflow: str) -> None:
        RivalError.__init__(self, f"Run {run_id!r} of workflow {workflow!r} was cancelled.")
        self.run_id, self.workflow, self.failed_step = run_id, workflow, None
        self.type, self.message, self.error, self.cause = "RunCancelled", "", None, None


class DatabaseError(RivalError):
    """Never holds SQL or values. The driver's error is the cause; `sqlstate` is the server's code for it, if it has
    given one, `problem` the message without what to do."""

    def __init__(self, message: str, sqlstate: str | None = None, *, problem: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate, self.problem = sqlstate, problem or message


class DatabaseUnavailable(DatabaseError):
    """The database did not answer, or takes no work now."""


class DatabaseBusy(DatabaseError):
    """Deadlocks, serialization failures or lock timeouts, after the transaction was repeated several times."""


class DatabaseRefused(DatabaseError):
    """The database has rejected a statement."""

    #: SQLSTATE classes: data exceptions, and what exceeds a limit of the server.
    _ABOUT_VALUES = ("22", "54")

    @property
    def about_values(self) -> bool:
        """The values given are the reason: a repetition with the same values fails, too."""
        return (self.sqlstate or "").startswith(self._ABOUT_VALUES)


class MissingTables(DatabaseRefused, ConfigurationError):
    """`rival db upgrade` was not run on this database."""
