"""Whatever Python can call can be a step: run for real, each form with what it asks for by name."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rival_workers import DefinitionError, create_workflow, for_each, loop, step
from rival_workers.definition.given_steps import location
from tests.support import output
from tests.support.inline import Inline, opened


@pytest.fixture
def inline(sqlite_url: str) -> Iterator[Inline]:
    with opened(lambda: Inline(sqlite_url)) as made:
        yield made


def result(inline: Inline, *steps: Any) -> Any:
    inline.define("forms", *steps)
    run_id = inline.rival.run("forms", {"n": 2}).run_id
    inline.drain()
    return inline.rival.result(run_id).unwrap()


def plain(input: Any) -> Any:
    return input["n"]


async def asynchronous(input: Any) -> Any:
    await asyncio.sleep(0)
    return input["n"]


def whole(everything: Any) -> Any:
    return everything.input["n"]


async def whole_async(ctx: Any) -> Any:
    return ctx.input["n"]


def with_extra(factor: int, input: Any, *, plus: int = 0) -> Any:
    return input["n"] * factor + plus


def future(input: Any) -> Any:
    """Sync, and returns an awaitable that is not a coroutine."""

    class Later:
        def __await__(self) -> Any:
            return asyncio.sleep(0, input["n"]).__await__()

    return Later()


class Chopper:
    def __init__(self, n: int) -> None:
        self.n = n

    def method(self, input: Any) -> Any:
        return input["n"] * self.n

    async def async_method(self, input: Any) -> Any:
        return input["n"] * self.n

    def with_extra(self, plus: int, input: Any) -> Any:
        return input["n"] * self.n + plus

    bound_in_class = functools.partialmethod(with_extra, 1)

    @staticmethod
    def static(input: Any) -> Any:
        return input["n"]

    @classmethod
    def of_class(cls, input: Any) -> Any:
        return input["n"]


class Callable:
    def __call__(self, input: Any, log: Any) -> Any:
        return input["n"]


class AsyncCallable:
    async def __call__(self, ctx: Any) -> Any:
        return ctx.input["n"]


def decorated_with(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


FORMS = {
    "plain": (plain, 2),
    "asynchronous": (asynchronous, 2),
    "whole": (whole, 2),
    "whole_async": (whole_async, 2),
    "future": (future, 2),
    "method": (Chopper(3).method, 6),
    "async_method": (Chopper(3).async_method, 6),
    "static": (Chopper.static, 2),
    "staticmethod": (staticmethod(plain), 2),
    "classmethod": (Chopper.of_class, 2),
    "partial": (functools.partial(with_extra, 5), 10),
    "by_keyword": (functools.partial(with_extra, factor=5), 10),
    "twice": (functools.partial(functools.partial(with_extra, 5), plus=1), 11),
    "of_method": (functools.partial(Chopper(3).with_extra, 4), 10),
    "of_async": (functools.partial(asynchronous), 2),
    "of_async_method": (functools.partial(Chopper(3).async_method), 6),
    "partialmethod": (Chopper(3).bound_in_class, 7),
    "callable": (Callable(), 2),
    "async_callable": (AsyncCallable(), 2),
    "of_callable": (functools.partial(AsyncCallable()), 2),
    "decorated": (decorated_with(plain), 2),
    "decorated_async": (decorated_with(asynchronous), 2),
    "decorated_whole": (decorated_with(whole), 2),
    "cached": (functools.cache(lambda: 4), 4),
    "lambda": (lambda input: input["n"], 2),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_function_is_a_step(inline: Inline, form: str) -> None:
    function, expected = FORMS[form]
    assert result(inline, step(function, name="it")) == expected


def test_every_name_is_there_at_once_with_item_and_index_inside(inline: Inline) -> None:
    def everything(ctx, input, steps, last_step, state, log, run, item, index):  # type: ignore[no-untyped-def]
        assert ctx.input == input
        assert (ctx.item, ctx.index, ctx.run) == (item, index, run)
        state.description = run.step
        log.info("seen", names=list(steps), before=last_step.step_name)
        return [input["n"], item, index]

    def turn(index, last_step):  # type: ignore[no-untyped-def]
        return [index, last_step.result]

    each = for_each("lines", items=lambda: ["a", "b"], do=[everything])
    assert result(inline, each, loop("turns", do=[turn], max_iterations=2)) == [
        1,
        [0, [[2, "a", 0], [2, "b", 1]]],
    ]


def test_a_generator_gives_the_items_of_a_for_each(inline: Inline) -> None:
    def numbers(input: Any) -> Iterator[int]:
        yield from range(input["n"])

    assert result(inline, for_each("all", items=numbers, do=[step(lambda item: item + 1, name="one")])) == [1, 2]


def yields() -> Iterator[int]:
    yield 1


async def yields_async() -> AsyncIterator[int]:
    yield 1


class Yields:
    def __call__(self) -> Iterator[int]:
        yield 1

    def method(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "function", [yields, yields_async, Yields(), Yields().method, functools.partial(yields)], ids=lambda f: str(f)[:20]
)
def test_a_generator_is_refused_as_a_step_and_as_a_handler(function: Any) -> None:
    problem = "is a generator, but a step has one result: return a list (items of a for_each may be one)"
    for workflow, expected in (
        (create_workflow("w").step(function, name="it"), f"steps[0]: it: {problem} (…)"),
        (create_workflow("w").step(plain, on_error=function), f"steps[0]: plain's on_error: {problem} (…)"),
        (create_workflow("w").step(plain).on_error(function), f"on_error: {problem}"),
    ):
        with pytest.raises(DefinitionError, match=output.whole(f"…: workflow 'w': {expected}")):
            workflow.build()


@pytest.mark.parametrize("function", [Chopper.method, Callable.__call__])
def test_a_method_without_its_object_is_refused(function: Any) -> None:
    owner, name = function.__qualname__.split(".")[-2:]
    expected = (
        f"…: workflow 'w': steps[0]: it: is a method without its object: give one of an object, {owner}(…).{name} (…)"
    )
    with pytest.raises(DefinitionError, match=output.whole(expected)):
        create_workflow("w").step(function, name="it").build()


def test_options_of_the_decorator_also_hold_for_methods_and_partials() -> None:
    class Timed:
        @step(timeout=5)
        def method(self, input: Any) -> None: ...

    built = create_workflow("w").step(Timed().method).step(functools.partial(Timed().method), name="partly").build()
    assert [built.policies.at(node.name).timeout for node in built.body] == [5, 5]


@pytest.mark.parametrize("function", [plain, functools.partial(plain), decorated_with(plain), staticmethod(plain)])
def test_an_error_leads_to_the_function_that_was_written(function: Any) -> None:
    assert location(function) == f" ({__file__}:{plain.__code__.co_firstlineno})"


def test_an_error_about_an_object_leads_to_its_class() -> None:
    assert location(Callable()) == f" ({__file__}:{Callable.__call__.__code__.co_firstlineno})"
    assert location(dict) == location(3) == ""
