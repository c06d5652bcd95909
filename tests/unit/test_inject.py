"""A step names what it wants: every form of a signature, and what is said when a parameter cannot be filled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rival_workers.definition.inject import HANDLER_NAMES, STEP_NAMES, injection
from tests.support.output import whole

CONTEXT = SimpleNamespace(**{name: f"<{name}>" for name in HANDLER_NAMES if name != "ctx"})


def called(function: Callable[..., Any], allowed: tuple[str, ...] = STEP_NAMES) -> Any:
    return injection(function, allowed).call(CONTEXT)


def test_every_name_can_be_asked_for_in_any_order() -> None:
    def backwards(run, log, state, last_step, steps, input, ctx):  # type: ignore[no-untyped-def]
        return ctx, input, steps, last_step, state, log, run

    names = ("input", "steps", "last_step", "state", "log", "run")
    assert called(backwards) == (CONTEXT, *(f"<{name}>" for name in names))


@pytest.mark.parametrize("name", [name for name in STEP_NAMES if name != "ctx"])
def test_one_name_alone_is_that_thing_and_not_the_whole_context(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def f({name}): return {name}", namespace)  # noqa: S102
    assert called(namespace["f"]) == f"<{name}>"


STEPS_MAY_HAVE = (
    "a step may ask for any of ctx, input, steps, last_step, state, log, run, or take the whole context as its only "
    "argument. Rename it, or give it a default."
)


@pytest.mark.parametrize("name", ["error", "failed_step", "workflow_state"])
def test_a_handler_may_also_ask_for_what_went_wrong(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def f(log, {name}): return {name}", namespace)  # noqa: S102
    assert called(namespace["f"], HANDLER_NAMES) == f"<{name}>"
    with pytest.raises(ValueError, match=whole(f"cannot inject parameter '{name}': {STEPS_MAY_HAVE}")):
        called(namespace["f"], STEP_NAMES)


def test_no_parameters_are_fine() -> None:
    assert called(lambda: "nothing") == "nothing"


@pytest.mark.parametrize("name", ["ctx", "context", "c", "everything"])
def test_an_only_argument_of_any_other_name_is_the_whole_context(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def f({name}): return {name}", namespace)  # noqa: S102
    assert called(namespace["f"]) is CONTEXT


def test_keyword_only_parameters_come_by_name() -> None:
    def f(input: Any, *, log: Any) -> Any:
        return input, log

    assert called(f) == ("<input>", "<log>")


def test_positional_only_parameters_come_by_position() -> None:
    def f(log: Any, input: Any, /, state: Any) -> Any:
        return log, input, state

    assert called(f) == ("<log>", "<input>", "<state>")


def test_a_positional_only_whole_context() -> None:
    def f(whatever: Any, /) -> Any:
        return whatever

    assert called(f) is CONTEXT


def test_an_unknown_parameter_with_a_default_keeps_it_and_a_known_one_is_filled_all_the_same() -> None:
    def f(input: Any, retries: int = 3, log: Any = None) -> Any:
        return input, retries, log

    assert called(f) == ("<input>", 3, "<log>")


def test_a_skipped_positional_only_default_does_not_shift_the_others() -> None:
    def f(retries: int = 3, input: Any = None, /) -> Any:
        return retries, input

    with pytest.raises(
        ValueError,
        match=whole(
            "cannot inject parameter 'retries': a step may ask for any of ctx, input, steps, last_step, state, "
            "log, run, or take the whole context as its only argument. Rename it, or give it a default."
        ),
    ):
        called(f)


def test_var_arguments_are_left_empty() -> None:
    def f(input: Any, *args: Any, **kwargs: Any) -> Any:
        return input, args, kwargs

    assert called(f) == ("<input>", (), {})
    assert called(lambda **kwargs: kwargs) == {}
    assert called(lambda *args: args) == ()


def test_a_partials_bound_arguments_stay_bound() -> None:
    def f(axe: str, input: Any, log: Any) -> Any:
        return axe, input, log

    assert called(functools.partial(f, "sharp")) == ("sharp", "<input>", "<log>")
    assert called(functools.partial(f, axe="sharp")) == ("sharp", "<input>", "<log>")
    assert called(functools.partial(f, "sharp", log="mine")) == ("sharp", "<input>", "mine")
    assert called(functools.partial(functools.partial(f, "sharp"), log="mine")) == ("sharp", "<input>", "mine")


def test_a_partial_that_leaves_one_argument_gets_the_whole_context() -> None:
    assert called(functools.partial(lambda context, axe: (context, axe), axe="sharp")) == (CONTEXT, "sharp")


class Lumberjack:
    def chop(self, input: Any) -> Any:
        return self, input

    @classmethod
    def of_class(cls, input: Any) -> Any:
        return cls, input

    @staticmethod
    def of_unknown(input: Any) -> Any:
        return input

    def __call__(self, steps: Any) -> Any:
        return self, steps


def test_methods_and_callables_need_no_argument_for_self() -> None:
    jack = Lumberjack()
    assert called(jack.chop) == (jack, "<input>")
    assert called(Lumberjack.of_class) == (Lumberjack, "<input>")
    assert called(Lumberjack.of_unknown) == "<input>"
    assert called(jack) == (jack, "<steps>")


def test_a_decorated_function_is_seen_through_its_wrapper() -> None:
    def f(input: Any, log: Any) -> Any:
        return input, log

    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    assert called(wrapper) == ("<input>", "<log>")


def test_a_builtin_without_a_signature_is_called_without_arguments() -> None:
    assert called(dict) == {}


def test_the_message_names_every_unknown_parameter_what_is_possible_and_what_to_do() -> None:
    def f(input: Any, axe: Any, tree: Any) -> None: ...

    with pytest.raises(ValueError) as caught:
        injection(f, STEP_NAMES)
    assert str(caught.value) == (
        f"cannot inject parameters 'axe', 'tree': a step may ask for any of {', '.join(STEP_NAMES)}, or take the whole "
        "context as its only argument. Rename it, or give it a default."
    )


def test_two_unknown_parameters_are_not_the_whole_context() -> None:
    with pytest.raises(
        ValueError,
        match=whole(
            "cannot inject parameters 'a', 'b': a step may ask for any of ctx, input, steps, last_step, state, "
            "log, run, or take the whole context as its only argument. Rename it, or give it a default."
        ),
    ):
        injection(lambda a, b: None, STEP_NAMES)
