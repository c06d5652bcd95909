"""Every public method of the clients with hostile values for every parameter: an error of ours that names the argument,
or a result; nothing raw, nothing stuck, and a database that everything can still be read from.

By default a seeded sample. RIVAL_FUZZ=all makes every call, RIVAL_FUZZ_SEED chooses another sample.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from rival_client import AsyncRival, AsyncWorkflowRegistry, Rival, RivalError, WorkflowRegistry
from rival_client.api.handles import AsyncStarted, Started
from rival_client.api.instances import AsyncInstance, AsyncWorkflow, Instance, Workflow
from rival_client.errors import DatabaseError, InvalidArgument
from rival_workers import StepError, step
from tests.support.hostile import HOSTILE, TIMEOUT, Call, calls_of, parameters, some_of
from tests.support.inline import Inline

SYNC: dict[str, type] = {
    "rival": Rival,
    "registry": WorkflowRegistry,
    "workflow": Workflow,
    "instance": Instance,
    "started": Started,
}
ASYNC: dict[str, type] = {
    "rival": AsyncRival,
    "registry": AsyncWorkflowRegistry,
    "workflow": AsyncWorkflow,
    "instance": AsyncInstance,
    "started": AsyncStarted,
}
#: What each parameter usually is; a new one must be added here.
USUAL: dict[str, Any] = {
    "workflow": "echo",
    "run_id": "failed",
    "step": "fails",
    "reason": "a test",
    "topic": "paid",
    "payload": {"n": 1},
    "input": {"n": 1},
    "inputs": [{"n": 1}],
    "timeout": 5.0,
    "poll_interval": 0.05,
    "limit": 10,
    "by": "me",
    "verb": "cancel",
    "runs": ["done"],
    "token": "",
    "error": "down",
    "retry": False,
    "result": {"n": 2},
    "when": 3600,
    "name": "hourly",
    "timezone": "UTC",
    "catch_up": "none",
    "key": "42",
    "fold": 5,
    "depth": 3,
    "width": 3,
    "below": True,
    "dry_run": True,
    "delivery": "one",
    "expires": 60,
    "progress": 0.5,
    "level": "info",
    "after": None,
    "event_id": None,
    "run_ids": None,
    "connection": None,
    "value": 1,
    "since": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "chosen": ["failed"],
    "max": 5,
    "rule_id": 1,
    "match": "fails",
    "options": {"timeout": 60},
}
#: Per method, where that is something else.
UNUSUAL: dict[tuple[str, str], dict[str, Any]] = {
    # The key of a start is refused without what it is a key of.
    ("rival", "run"): {"run_id": None, "key": None},
    ("rival", "run_many"): {"workflow": "strict", "key": None},
    ("instance", "run"): {"key": None},
    # Its verb takes neither.
    ("rival", "bulk"): {"step": None, "reason": None},
    ("rival", "dead_letters"): {"chosen": None},
    ("rival", "deliveries"): {"event_id": "an event"},
    ("rival", "wait"): {"run_id": "ended"},
    ("rival", "schedule"): {"when": "*/5 * * * *", "key": None},
    ("rival", "send_event"): {"run_id": None},
    ("registry", "get"): {"name": "echo"},
    ("registry", "launch"): {"name": "echo", "key": None},
}
#: The options of starts that share a run.
SHARING = ("singleton", "on_conflict", "debounce", "max_wait", "collect", "batch", "within", "key")
#: Filters have names of their own for what is wrong with them; and wait(run_id) has the run's id first.
WITHIN = {
    "workflow": {"run_id"},
    "runs": {"workflow", "status", "since", "input"},
    "error": {"error['type']", "error['message']"},
    # A typed event takes no other payload.
    "topic": {"payload"},
    "match": {"rule"},
    "options": {"rule"},
    # These exclude each other, or need one another.
    **{name: {"run_id", "connection", *SHARING} for name in SHARING},
}


class Strict(BaseModel):
    n: int


@pytest.fixture
def fleet(inline: Inline) -> Iterator[Inline]:
    inline.define("echo", echo)
    inline.define("strict", echo, input=Strict)
    inline.define("fails", fails)
    inline.define("external", step(hands_out, execution_mode="external"))
    for run_id in ("done", "ended"):
        inline.rival.run("echo", {"n": 1}, run_id)
    inline.rival.run("fails", None, "failed")
    inline.rival.run("external", None, "open")
    inline.drain()
    yield inline
    everything_can_be_read(inline)


def echo(input: Any) -> Any:
    return input


def fails() -> None:
    raise StepError("no", behavior="stop")


def hands_out(ctx: Any) -> None:
    TOKENS.append(ctx.completion_token)


TOKENS: list[str] = []


def arguments(call: Call, method: Any) -> dict[str, Any]:
    always, known = UNUSUAL.get((call.surface, call.method), {}), {**USUAL, "token": TOKENS[-1]}
    wanted = parameters(method)
    missing = [name for name, one in wanted.items() if one.default is inspect.Parameter.empty and name not in known]
    assert not missing, f"{call}: say in USUAL what is usual for {missing}"
    return call.arguments(known, always, method)


def judge(call: Call, error: BaseException | None, seconds: float) -> str | None:
    """What is wrong with how a call has ended."""
    if seconds > 30:
        return f"{call} took {seconds:.0f} s"
    if error is None:
        return None
    # Only a connection that the caller has given may be of a database that rejects what is asked of it.
    from_database = isinstance(error, DatabaseError) and call.parameter != "connection"
    if not isinstance(error, RivalError) or from_database:
        return f"{call} raised {type(error).__module__}.{type(error).__qualname__}: {str(error)[:300]}"
    if len(str(error)) > 10_000:
        return f"{call}: a message of {len(str(error)):,} signs"
    if isinstance(error, InvalidArgument) and error.argument.partition("[")[0] != call.parameter:
        return None if error.argument in WITHIN.get(call.parameter, ()) else f"{call} names {error.argument}"
    return None


def none(wrong: list[str | None]) -> None:
    found = [one for one in wrong if one is not None]
    assert not found, f"{len(found)} of {len(wrong)} calls:\n" + "\n".join(found[:200])


def everything_can_be_read(inline: Inline) -> None:
    """And every run that was started goes to its end."""
    inline.drain()
    rival = inline.rival
    found = rival.runs(limit=100_000)
    assert found.next is None
    # A run may begin later: the fuzz gives delays, too.
    begun = [one for one in found if one.due_at is None and one.run_id != "open"]
    stuck = {one.run_id[:60]: one.status for one in begun if not one.is_terminal}
    assert not {run: status for run, status in stuck.items() if not rival.state(run).is_paused}
    for run in found[:300]:
        assert rival.state(run.run_id).run_id == run.run_id
        assert rival.history(run.run_id) is not None
        assert rival.tree(run.run_id).run_id == run.run_id
    assert rival.events(limit=100_000) is not None
    assert rival.topics() is not None
    assert rival.schedules() is not None
    inline.keeper.run_once()


def surfaces_of(rival: Any, started: type) -> dict[str, Any]:
    workflow = rival.get("echo")
    return {
        "rival": rival,
        "registry": rival.registry,
        "workflow": workflow,
        "instance": workflow.get_or_create("ended"),
        "started": started("ended", "running", rival),
    }


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
def test_no_hostile_argument_reaches_the_database_or_raises_a_raw_error(fleet: Inline) -> None:
    surfaces = surfaces_of(fleet.rival, Started)
    wrong = []
    for call in some_of(calls_of(SYNC)):
        method = getattr(surfaces[call.surface], call.method)
        given, began, error = arguments(call, method), time.monotonic(), None
        try:
            method(**given)
        except Exception as raised:
            error = raised
        wrong.append(judge(call, error, time.monotonic() - began))
        fleet.drain()
    none(wrong)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
def test_the_asynchronous_client_answers_the_same(fleet: Inline) -> None:
    async def made() -> list[str | None]:
        rival = AsyncRival(sync=fleet.rival)
        surfaces = surfaces_of(rival, AsyncStarted)
        return [await one_call(call, surfaces, fleet) for call in some_of(calls_of(ASYNC), 0.3)]

    none(asyncio.run(made()))


async def one_call(call: Call, surfaces: Mapping[str, Any], fleet: Inline) -> str | None:
    method = getattr(surfaces[call.surface], call.method)
    given, began, error = arguments(call, method), time.monotonic(), None
    try:
        answer = method(**given)
        if inspect.isawaitable(answer):
            await asyncio.wait_for(answer, 60)
    except Exception as raised:
        error = raised
    fleet.drain()
    return judge(call, error, time.monotonic() - began)


@pytest.mark.parametrize("parameter", ["database_url", "broker_url", "settings"])
@pytest.mark.parametrize("cls", [Rival, AsyncRival])
def test_a_client_is_not_made_of_hostile_values(cls: type, parameter: str) -> None:
    wrong = []
    for kind, made in HOSTILE.items():
        try:
            cls(**{"database_url": "sqlite://", parameter: made()})
        except RivalError:
            continue
        except Exception as raised:
            wrong.append(f"{kind}: {type(raised).__qualname__}: {str(raised)[:200]}")
    assert not wrong
