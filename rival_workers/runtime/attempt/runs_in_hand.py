"""A run in hand: a generator that executes what one message asks for and yields its commits. Executed alone, each
commit is one operation of the store; the step scheduler executes the commits of several runs together.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from rival_workers.store.group_commits import Commit
from rival_workers.store.interface import Store

T = TypeVar("T")
#: Yields commits, receives their answers, and returns a result.
Commits = Generator[Commit, Any, T]

#: Seconds. Other runs do not wait for a step that usually takes longer.
QUICK = 0.001


def committed(commit: Commit) -> Commits[Any]:
    """The answer to one commit."""
    return (yield commit)


def commit_alone(commits: Commits[T], store: Store) -> T:
    """Make each commit by itself, in this thread."""
    try:
        commit = next(commits)
        while True:
            try:
                answer = commit.apply(store)
            except BaseException as error:
                commit = commits.throw(error)
            else:
                commit = commits.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


class RunInHand:
    """What one message asks for, until this process has nothing more to do for it: a run, a lane of a run, an attempt
    of one step, or an event and the step that it wakes."""

    __slots__ = ("answer", "commit", "commits", "error", "place", "workflow")

    def __init__(self, commits: Commits[Any], workflow: tuple[str, str] | None, place: str | None = None) -> None:
        """`workflow`: its name and version; None: it is an event."""
        self.commits, self.workflow = commits, workflow
        self.commit: Commit | None = None
        self.answer: Any = None
        self.error: BaseException | None = None
        #: The place of the step that runs next; None: the run has not begun.
        self.place = place

    def __str__(self) -> str:
        return "an event" if self.workflow is None else "a run of {} version {}".format(*self.workflow)


class Durations:
    """How long the steps of each place take. A step is slow until it was seen to be quick."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[tuple[str, str] | None, str | None], float] = {}

    def is_slow(self, run: RunInHand) -> bool:
        return run.place is not None and self._seconds.get((run.workflow, run.place), 1.0) > QUICK

    def add(self, run: RunInHand, place: str | None, seconds: float) -> None:
        if place is not None:
            key = (run.workflow, place)
            known = self._seconds.get(key, 1.0)
            # One slow call in fifty makes a step slow at once; it is quick again after some quick ones.
            self._seconds[key] = known + (0.5 if seconds < known else 0.02) * (seconds - known)
