"""`celery_step` with tasks of a team's own app: their bodies run here, and nothing is sent to the team's broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task, shared_task
from celery.exceptions import Ignore, Reject, Retry

from rival_workers import DefinitionError, celery_step, embedded
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from tests.support.inline import Clock, Inline, opened
from tests.support.output import is_printed

# A broker that is not there: whatever is sent to it is an error, at once.
team = Celery("team", broker="redis://127.0.0.1:1/0")
team.conf.update(task_publish_retry=False, broker_connection_timeout=1)


@team.task
def add(a: int, b: int = 0) -> int:
    return a + b


@shared_task(name="elsewhere.tasks.shared")
def shared(word: str) -> str:
    return word.upper()


@team.task(bind=True)
def introspective(self: Any) -> dict[str, Any]:
    request = self.request
    return {"id": request.id, "retries": request.retries, "root": request.root_id, "args": list(request.args)}


@team.task(bind=True, max_retries=5)
def flaky(self: Any, failures: int, secret: str = "") -> int:
    if self.request.retries < failures:
        raise self.retry(exc=ConnectionError("down"), countdown=600)
    return int(self.request.retries)


@team.task(bind=True, max_retries=1)
def gives_up(self: Any, secret: str) -> None:
    raise self.retry()


@team.task(autoretry_for=(ConnectionError,), retry_backoff=600, max_retries=5)
def by_itself(seen: int) -> None:
    raise ConnectionError("down")


@team.task
def rejects() -> None:
    raise Reject("not mine", requeue=True)


@team.task
def ignores() -> None:
    raise Ignore()


@team.task
def plain_retry() -> None:
    raise Retry("later")


@team.task
def breaks() -> None:
    raise KeyError("broken")


@team.task
def gives_an_object() -> Any:
    return object()


class Counting(Task):
    calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        Counting.calls += 1
        return super().__call__(*args, **kwargs)


@team.task(base=Counting, bind=True)
def counted(self: Any, a: int) -> list[Any]:
    return [a, self.request.id]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inline(sqlite_url: str, clock: Clock) -> Iterator[Inline]:
    with opened(lambda: Inline(sqlite_url, clock=clock)) as one:
        yield one


def carried_out(inline: Inline, *steps: Any, input: Any = None, rounds: int = 6) -> Any:
    inline.define("w", *steps)
    run_id = inline.rival.run("w", input, run_id="r").run_id
    for _ in range(rounds):
        inline.drain()
        assert inline.clock is not None
        inline.clock.advance(30)
    return inline.rival.state(run_id)


def test_a_task_is_a_step_with_its_arguments_filled_in(inline: Inline) -> None:
    state = carried_out(
        inline,
        celery_step(add, args=["{input[a]}"], kwargs={"b": lambda input: input["a"] * 2}),
        celery_step(add, args=lambda last_step: [last_step.result, 1], name="again"),
        celery_step(shared, args=["n{steps.again.result}"]),
        input={"a": 3},
    )
    assert [(step.path, step.result) for step in state.steps] == [("add", 9), ("again", 10), ("shared", "N10")]


def test_a_bound_task_sees_its_request(inline: Inline) -> None:
    state = carried_out(inline, celery_step(introspective))
    assert state.result == {"id": "r:introspective:1", "retries": 0, "root": "r", "args": []}
    assert introspective.request.id is None


def test_a_retry_that_a_task_asks_for_is_one_of_the_step_with_the_steps_backoff(inline: Inline) -> None:
    state = carried_out(inline, celery_step(flaky, args=[2], base_delay=1))
    assert (state.status, state.result, state.steps[0].attempts) == ("completed", 2, 3)
    assert state.attempts[0].error["message"] == f"task {__name__}.flaky asks to be tried again: ConnectionError: down"


def test_the_steps_max_attempts_is_the_last_word(inline: Inline) -> None:
    state = carried_out(inline, celery_step(flaky, args=[9], max_attempts=2, base_delay=1))
    assert (state.status, state.steps[0].attempts) == ("failed", 2)


def test_the_tasks_max_retries_holds_and_its_arguments_stay_out_of_the_error(inline: Inline) -> None:
    state = carried_out(inline, celery_step(gives_up, args=["s3cret"], max_attempts=9, base_delay=1))
    assert (state.status, state.steps[0].attempts) == ("failed", 2)
    assert state.error["message"] == f"task {__name__}.gives_up has been retried as often as its max_retries allows"


def test_autoretry_is_a_retry_of_the_step(inline: Inline) -> None:
    state = carried_out(inline, celery_step(by_itself, args=[1], max_attempts=3, base_delay=1))
    assert (state.status, state.steps[0].attempts) == ("failed", 3)


def test_a_retry_that_is_raised_as_it_is_counts_too(inline: Inline) -> None:
    state = carried_out(inline, celery_step(plain_retry, max_attempts=2, base_delay=1))
    assert state.steps[0].attempts == 2


def test_a_rejected_task_fails_an_ignored_one_is_skipped(inline: Inline) -> None:
    state = carried_out(inline, celery_step(ignores), celery_step(rejects))
    assert [step.status for step in state.steps] == ["skipped", "failed"]
    assert state.error["message"] == f"task {__name__}.rejects has rejected its work: not mine"


@pytest.mark.parametrize(("task", "kind"), [(breaks, "KeyError"), (gives_an_object, "InvalidPayload")])
def test_any_other_error_stops_and_a_result_must_be_json(inline: Inline, task: Any, kind: str) -> None:
    state = carried_out(inline, celery_step(task, max_attempts=3))
    assert (state.status, state.error["type"], state.steps[0].attempts) == ("failed", kind, 1)


def test_a_task_class_with_a_call_of_its_own_is_called_through_it(inline: Inline) -> None:
    before = Counting.calls
    assert carried_out(inline, celery_step(counted, args=[4])).result == [4, "r:counted:1"]
    assert Counting.calls == before + 1


def test_it_runs_on_a_celery_worker_without_getting_in_its_way() -> None:
    registry = Registry()
    registry.add(define_workflow("w", [celery_step(introspective), celery_step(flaky, args=[1], base_delay=0.01)]))
    with embedded(registry=registry) as rival:
        result = rival.wait("w", rival.run("w", run_id="r").run_id, timeout=20)
    assert result.results["introspective"]["id"] == "r:introspective:1"
    assert result.result == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": "team.add"}, "'team.add' is not a Celery task: give the task itself, as its app's …"),
        ({"task": SimpleNamespace(name="x")}, "namespace(name='x') is not a Celery task: give the task itself, …"),
        ({"task": add, "args": "abc"}, "option args: give a list or a function, not 'abc'"),
        ({"task": add, "kwargs": ["a"]}, "option kwargs: give a dict or a function, not ['a']"),
        ({"task": add, "args": ["{nothing}"]}, "args[0]: template {nothing} begins with 'nothing'; …"),
        ({"task": add, "countdown": 3}, "unknown option 'countdown'; known are name, …"),
    ],
)
def test_what_makes_no_sense_is_refused_at_registration(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [celery_step(**given)])
    assert is_printed([f"workflow 'w': steps[0]: {said}"], refused.value.problems)
