"""Every operator verb in every situation that a run can be in: the verb takes effect, says False, or is refused with an
error that names the run and the step and says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select

from rival_client import RivalError
from rival_client.broker.message import StepMessage
from rival_client.db.run_tables import steps
from rival_client.errors import RunNotFound
from rival_client.model.completion_token import CompletionToken
from rival_workers import StepError, flow, for_each, step, wait_event_step
from tests.support.inline import Clock, Inline

pytestmark = pytest.mark.usefixtures("locks_in_order")

WHY = {"reason": "table"}
STEP_VERBS = ("rewind", "skip", "set_result")


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A message for each step, so that a run can be left between two of them."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    inline = Inline(url, clock=Clock() if request.param == "sqlite" else None, continuation_budget=0.0)
    yield Stage(inline)
    inline.close()


class Stage:
    def __init__(self, inline: Inline) -> None:
        self.inline, self.rival = inline, inline.rival
        self.tokens: dict[str, str] = {}
        #: Steps that fail, until they are mended.
        self.broken: set[str] = set()
        self._defined: set[str] = set()

    def define(self, workflow: str) -> None:
        if workflow in self._defined:
            return
        self._defined.add(workflow)
        if workflow == "parent":
            self.define("event")
        self.inline.define(workflow, *self._plan(workflow))

    def _plan(self, workflow: str) -> list[Any]:
        retried = {"behavior": "retry", "max_attempts": 9, "backoff": "linear", "base_delay": 3600}
        plans = {
            "plain": [self._step("a"), self._step("b", on_error=_undo), self._step("c")],
            "retried": [self._step("a"), self._step("b", **retried)],
            "event": [wait_event_step("go", name="w"), self._step("c")],
            "external": [step(self._ask, name="ask", execution_mode="external"), self._step("c")],
            "fan": [for_each("f", items=lambda: [0, 1, 2], do=[self._step("a")], concurrency=2)],
            "saga": [*(self._step(name, compensate=_undo) for name in ("a", "b")), self._step("c")],
            "flowing": [flow("fl", register=False)(self._flow)],
            "parent": [flow("fl", register=False)(lambda ctx: ctx.call("event", {})), self._step("c")],
        }
        return plans[workflow]

    def _ask(self, ctx: Any) -> None:
        self.tokens[ctx.run.run_id] = ctx.completion_token

    def _step(self, name: str, behavior: Any = "stop", **options: Any) -> Any:
        def act() -> str:
            if name in self.broken:
                raise StepError(f"{name} is broken", behavior=behavior)
            return name

        return step(act, name=name, **options)

    def _flow(self, ctx: Any) -> Any:
        def one() -> int:
            return 1

        return [ctx.step(one), ctx.sleep(3600), ctx.step(one)]

    def start(self, workflow: str, until: dict[str, str], broken: str = "") -> str:
        """A run that is left as soon as its steps are like this. What was published for it is kept."""
        self.define(workflow)
        self.broken = set(broken)
        run_id = self.rival.run(workflow, {}).run_id
        later: list[StepMessage] = []
        while not until.items() <= self.steps(run_id).items():
            first, *rest = self.inline.doorbell.take() or [None]
            assert first is not None, (until, self.rival.state(run_id))
            self.inline.doorbell.messages += rest
            if first.countdown:
                later.append(first)
            else:
                self.inline.deliver(first)
        self.inline.doorbell.messages += later
        self.broken = set()
        return run_id

    def steps(self, run_id: str) -> dict[str, str]:
        columns = select(steps.c.path, steps.c.status).where(steps.c.run_id == run_id)
        with self.inline.store.database.autocommit() as connection:
            return {row.path: row.status for row in connection.execute(columns)}

    def ended(self, workflow: str, status: str, broken: str = "") -> str:
        self.define(workflow)
        self.broken = set(broken)
        run_id = self.rival.run(workflow, {}).run_id
        self.inline.drain()
        assert self.rival.state(run_id).status == status
        self.broken = set()
        return run_id

    def cancelled(self) -> str:
        run_id = self.start("plain", {"b": "pending"})
        self.rival.cancel(run_id)
        return run_id

    def paused(self) -> str:
        run_id = self.start("plain", {"b": "pending"})
        self.rival.pause(run_id)
        return run_id

    def child(self) -> str:
        parent = self.start("parent", {})
        while not (found := self.rival.runs(parent=parent)):
            self.inline.deliver(self.inline.doorbell.messages.pop(0))
        child = found[0].run_id
        while self.steps(child) != {"w": "waiting"}:
            self.inline.deliver(self.inline.doorbell.messages.pop(0))
        return child

    def token(self, run_id: str, path: str) -> str:
        """Of the external step; of any other step, the token of the attempt that it would be."""
        made = self.inline.store.token_of(run_id, path)
        return self.tokens.get(run_id) or str(CompletionToken(run_id, path, max(0, made[1] - 1) if made else 1))

    def seen(self, run_id: str) -> list[Any]:
        """The status of the run and of its steps, and its history without answers that came too late; nothing of an
        unknown run."""
        try:
            state = self.rival.state(run_id)
        except RunNotFound:
            return []
        recorded = [one for one in self.rival.history(run_id) if one.what != "late_answer_refused"]
        return [state.status, state.paused_at, [(one.path, one.status) for one in state.steps], recorded]

    def end(self, run_id: str, status: str | None, verb: str) -> None:
        """All messages are delivered; what is still open then is cancelled."""
        self.inline.drain()
        state = self.rival.state(run_id)
        assert status in (None, state.status), (verb, state)
        assert self.rival.cancel(run_id) is not state.is_terminal
        self.inline.drain()
        assert self.rival.state(run_id).is_terminal


def _undo(ctx: Any) -> None:
    """A handler or compensation."""


@dataclass(frozen=True)
class Situation:
    make: Callable[[Stage], str]
    step: str


SITUATIONS = {
    "unknown run": Situation(lambda stage: "nobody", "a"),
    "completed": Situation(lambda stage: stage.ended("plain", "completed"), "b"),
    "failed": Situation(lambda stage: stage.ended("plain", "failed", "b"), "b"),
    "failed, handler": Situation(lambda stage: stage.ended("plain", "failed", "b"), "b!on_error"),
    "failed, other step": Situation(lambda stage: stage.ended("plain", "failed", "b"), "a"),
    "cancelled": Situation(lambda stage: stage.cancelled(), "b"),
    "pending": Situation(lambda stage: stage.start("plain", {}), "a"),
    "waiting for a retry": Situation(lambda stage: stage.start("retried", {"b": "waiting_retry"}, "b"), "b"),
    "waiting for an event": Situation(lambda stage: stage.start("event", {"w": "waiting"}), "w"),
    "waiting for an answer": Situation(lambda stage: stage.start("external", {"ask": "waiting"}), "ask"),
    "sleeping flow": Situation(lambda stage: stage.start("flowing", {"fl": "waiting"}), "fl"),
    "checkpoint, ended": Situation(lambda stage: stage.start("flowing", {"fl": "waiting"}), "fl/one"),
    "checkpoint, sleeping": Situation(lambda stage: stage.start("flowing", {"fl": "waiting"}), "fl/sleep"),
    "paused": Situation(lambda stage: stage.paused(), "b"),
    "fan-out": Situation(lambda stage: stage.start("fan", {"f[0]/a": "completed"}), "f[1]/a"),
    "composite": Situation(lambda stage: stage.start("fan", {"f[0]/a": "completed"}), "f"),
    "item": Situation(lambda stage: stage.start("fan", {"f[0]/a": "completed"}), "f[1]"),
    "compensating": Situation(lambda stage: stage.start("saga", {"b!compensate": "completed"}, "c"), "a"),
    "compensation": Situation(lambda stage: stage.start("saga", {"b!compensate": "completed"}, "c"), "a!compensate"),
    "compensated": Situation(lambda stage: stage.ended("saga", "failed", "c"), "c"),
    "child": Situation(lambda stage: stage.child(), "w"),
    "parent": Situation(lambda stage: str(stage.rival.state(stage.child()).parent_run_id), "fl"),
    "open handler": Situation(lambda stage: stage.start("plain", {"b!on_error": "pending"}, "b"), "b!on_error"),
    "failed, handler open": Situation(lambda stage: stage.start("plain", {"b!on_error": "pending"}, "b"), "b"),
    "unknown step": Situation(lambda stage: stage.start("plain", {"b": "pending"}), "nope"),
    "step of another run": Situation(lambda stage: stage.start("plain", {"b": "pending"}), "f[0]/a"),
}

VERBS: dict[str, Callable[[Stage, str, str], object]] = {
    "cancel": lambda stage, run_id, path: stage.rival.cancel(run_id),
    "pause": lambda stage, run_id, path: stage.rival.pause(run_id),
    "resume": lambda stage, run_id, path: stage.rival.resume(run_id),
    "retry": lambda stage, run_id, path: stage.rival.retry(run_id) and True,
    "rewind": lambda stage, run_id, path: stage.rival.rewind(run_id, path) and True,
    "skip": lambda stage, run_id, path: stage.rival.skip(run_id, path, **WHY) or True,
    "set_result": lambda stage, run_id, path: stage.rival.set_result(run_id, path, 7, **WHY) or True,
    "complete_step": lambda stage, run_id, path: stage.rival.complete_step(stage.token(run_id, path), 7),
    "fail_step": lambda stage, run_id, path: stage.rival.fail_step(stage.token(run_id, path), "no"),
    "send_event": lambda stage, run_id, path: stage.rival.send_event("go", 7, run_id=run_id).status == "sent",
}

#: What each verb does. A letter: it takes effect, and the run comes to that status when all messages are delivered
#: (Completed, Failed, cancelled: X, Running, Suspended, Pending). -: False. !: refused. A dot: as in the row above.
TABLE = """
                       cancel pause resume retry rewind skip set_result complete_step fail_step send_event
unknown run                 !     !      !     !      !    !          !             -         -          .
completed                   -     -      -     !      C    !          !             -         -          C
failed                      -     -      -     C      C    C          C             -         -          F
failed, handler             .     .      .     .      !    !          !             -         -          .
failed, other step          .     .      .     .      C    !          !             -         -          .
cancelled                   -     -      -     C      C    C          C             -         -          X
pending                     X     P      -     !      !    !          !             -         -          C
waiting for a retry         X     R      -     !      C    C          C             -         -          R
waiting for an event        X     S      -     !      S    C          C             -         -          C
waiting for an answer       X     S      -     !      S    C          C             C         F          S
sleeping flow               X     S      -     !      S    C          C             -         -          S
checkpoint, ended           .     .      .     .      S    !          !             -         -          .
checkpoint, sleeping        .     .      .     .      S    !          !             -         -          .
paused                      X     -      C     !      R    R          R             -         -          R
fan-out                     X     R      -     !      C    C          C             -         -          C
composite                   .     .      .     .      C    !          !             -         -          .
item                        .     .      .     .      C    !          !             -         -          .
compensating                X     R      -     !      C    !          !             -         -          F
compensation                .     .      .     .      !    F          F             -         -          .
compensated                 -     -      -     C      C    !          !             -         -          F
child                       X     S      -     !      S    C          C             -         -          C
parent                      X     S      -     !      S    C          C             -         -          S
open handler                X     R      -     !      !    F          F             -         -          F
failed, handler open        .     .      .     .      C    !          !             -         -          .
unknown step                .     .      .     .      !    !          !             -         -          .
step of another run         .     .      .     .      !    !          !             -         -          .
"""
STATUS = {
    "C": "completed",
    "F": "failed",
    "X": "cancelled",
    "R": "running",
    "S": "suspended",
    "P": "pending",
}

#: What a refusal says to do. `skip` stands for `set_result`, too.
INSTEAD = {
    ("unknown run", "*"): "`rival ls` lists the runs",
    ("completed", "retry"): "it is completed: rewind it to the step from which",
    ("completed", "skip"): "step 'b' is completed (open steps: none): rewind the run to 'b'",
    ("failed, handler", "rewind"): "rewind to 'b' instead",
    ("failed, handler", "skip"): "not at 'b!on_error' but at b: VERB that one, or rewind the run",
    ("failed, other step", "skip"): "not at 'a' but at b: VERB that one, or rewind the run",
    ("pending", "retry"): "it is pending, and no step has begun: wait for a worker, or cancel it",
    ("pending", "rewind"): "it is pending, and step 'a' has not begun: wait for a worker, or cancel it",
    ("pending", "skip"): "step 'a' does not exist yet, since the run is pending: VERB it when",
    ("*", "retry"): "only a failed or cancelled run can be retried: rewind it to a step, or cancel it first",
    ("checkpoint, ended", "skip"): "step 'fl/one' is completed (open steps: fl): rewind the run to 'fl/one'",
    ("checkpoint, sleeping", "skip"): "to run it again, or VERB 'fl' as a whole",
    ("composite", "skip"): "'f' is a for_each, and ends only with its steps (open steps: f[1]/a, f[2]/a): VERB each",
    ("item", "skip"): "'f[1]' is an item, and ends only with its steps (open steps: f[1]/a, f[2]/a): VERB each",
    ("compensating", "skip"): "step 'a' is completed (open steps: a!compensate): rewind the run to 'a'",
    ("compensation", "rewind"): "rewind to 'a' instead",
    ("compensated", "skip"): "retry it, and VERB the step when the run has reached it",
    ("open handler", "rewind"): "rewind to 'b' instead",
    ("failed, handler open", "skip"): "step 'b' is failed (open steps: b!on_error): rewind the run to 'b'",
    ("unknown step", "rewind"): "no step 'nope' has begun (known: a, b)",
    ("unknown step", "skip"): "unknown step 'nope' (open steps: b): name an open step",
    ("step of another run", "rewind"): "no step 'f[0]/a' has begun (known: a, b)",
    ("step of another run", "skip"): "unknown step 'f[0]/a' (open steps: b): name an open step",
}


def _cells() -> dict[str, dict[str, str]]:
    header, *lines = TABLE.strip("\n").splitlines()
    verbs = header.split()
    width = len(header) - len(header.lstrip())
    return {line[:width].strip(): dict(zip(verbs, line[width:].split(), strict=True)) for line in lines}


def _instead(situation: str, verb: str) -> str:
    like = "skip" if verb == "set_result" else verb
    places = [(situation, like), (situation, "*"), ("*", like)]
    return next(INSTEAD[place] for place in places if place in INSTEAD).replace("VERB", verb)


def test_the_table_has_every_situation_and_every_verb() -> None:
    cells = _cells()
    assert list(cells) == list(SITUATIONS)
    assert all(list(row) == list(VERBS) for row in cells.values())


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_verb_takes_effect_or_says_what_to_do(stage: Stage, situation: str) -> None:
    cells = _cells()[situation]
    # These change nothing, so they share a run.
    run_id = SITUATIONS[situation].make(stage)
    before = stage.seen(run_id)
    for verb in (verb for verb, cell in cells.items() if cell in "!-"):
        (_refused if cells[verb] == "!" else _says_no)(stage, situation, verb, run_id)
        assert stage.seen(run_id) == before, verb
    if before:
        stage.end(run_id, None, "none")
    for verb in (verb for verb, cell in cells.items() if cell in STATUS):
        run_id = SITUATIONS[situation].make(stage)
        assert VERBS[verb](stage, run_id, SITUATIONS[situation].step) is True, verb
        stage.end(run_id, STATUS[cells[verb]], verb)


def _refused(stage: Stage, situation: str, verb: str, run_id: str) -> None:
    path = SITUATIONS[situation].step
    with pytest.raises(RivalError) as refused:
        VERBS[verb](stage, run_id, path)
    text = str(refused.value)
    assert repr(run_id) in text, (verb, text)
    assert _instead(situation, verb) in text, (verb, text)
    assert verb not in STEP_VERBS or situation == "unknown run" or repr(path) in text, (verb, text)


def _says_no(stage: Stage, situation: str, verb: str, run_id: str) -> None:
    assert VERBS[verb](stage, run_id, SITUATIONS[situation].step) is False, verb


def test_a_child_that_is_ended_by_an_operator_wakes_its_parent(stage: Stage) -> None:
    for verb, status in {"skip": "completed", "set_result": "completed", "cancel": "failed"}.items():
        child = stage.child()
        parent = stage.rival.state(child).parent_run_id
        VERBS[verb](stage, child, "w")
        stage.inline.drain()
        assert stage.rival.state(str(parent)).status == status, verb
