"""What `{input.order_id}` and functions in a value become, and what a template may not do."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from rival_workers import DefinitionError, StepError, for_each, http_step
from rival_workers.definition.define import define_workflow
from rival_workers.predefined.http import parse_url
from rival_workers.predefined.templates import parse
from tests.support.output import is_printed, whole


class Order(BaseModel):
    order_id: str = "o-1"
    lines: list[dict[str, Any]] = field(default_factory=lambda: [{"sku": "a"}, {"sku": "b"}])
    paid: bool = True
    day: dt.date = dt.date(2024, 2, 29)
    note: str | None = None


@dataclass
class View:
    result: Any


CTX = SimpleNamespace(
    input=Order(lines=[{"sku": "a"}, {"sku": "b"}]),
    last_step=View({"x": {"y": 7}, "_id": 3}),
    item="line",
    index=2,
    run=SimpleNamespace(id="r", step="s"),
    log=SimpleNamespace(),
)


def filled(value: Any) -> Any:
    problems: list[str] = []
    part = parse(value, "value", problems)
    assert problems == []
    return part.fill(CTX)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("order {input.order_id}!", "order o-1!"),
        ("{input.lines[1].sku}", "b"),
        ("{input.lines[-1][sku]}", "b"),
        ("{last_step.result[x][y]}", 7),
        ("{last_step.result.x}", {"y": 7}),
        ("{last_step.result[_id]}", 3),
        ("{item}-{index}", "line-2"),
        ("{input.paid} {input.day}", "true 2024-02-29"),
        ("{{literally}} {item}", "{literally} line"),
        ({"a": ["{item}", {"b": "{index}"}], "n": 1}, {"a": ["line", {"b": 2}], "n": 1}),
        ({"f": lambda input, index: input.order_id * index}, {"f": "o-1o-1"}),
        (lambda: "nothing asked", "nothing asked"),
        (lambda context: context.item, "line"),
    ],
)
def test_templates_and_functions_are_filled_in_at_any_depth(template: Any, expected: Any) -> None:
    assert filled(template) == expected


PRIVATE = "names with a leading underscore are private"
BEGINS = "a template begins with one of input, steps, last_step, run, item, index"
INVALID = "is invalid: give a name with attributes, keys and indexes, like {input.lines[0].sku}"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{input.__class__}", f"template {{input.__class__}} refers to '__class__': {PRIVATE}"),
        ("{input._secret}", f"template {{input._secret}} refers to '_secret': {PRIVATE}"),
        ("{input[__class__]}", f"template {{input[__class__]}} refers to '__class__': {PRIVATE}"),
        ("{log.info}", f"template {{log.info}} begins with 'log'; {BEGINS}"),
        ("{ctx.input}", f"template {{ctx.input}} begins with 'ctx'; {BEGINS}"),
        ("{os.environ}", f"template {{os.environ}} begins with 'os'; {BEGINS}"),
        ("{input.order_id!r}", f"template {{input.order_id!r}} {INVALID}"),
        ("{input.order_id:>100000000}", f"template {{input.order_id:>100000000}} {INVALID}"),
        ("{input.lines[0]()}", f"template {{input.lines[0]()}} {INVALID}"),
        ("{1 + 1}", f"template {{1 + 1}} {INVALID}"),
        ("{}", f"template {{}} {INVALID}"),
        ("{ users { id } }", "found a single {: write {{ for the character itself"),
        ("}", "found a single }: write }} for the character itself"),
        (lambda nothing, such: 1, "cannot inject parameters 'nothing', 'such': …"),
    ],
)
def test_what_a_template_may_not_do_is_said_at_registration(template: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [http_step("https://example.com/", json={"deep": [template]})])
    assert is_printed([f"workflow 'w': steps[0]: json['deep'][0]: {said}"], refused.value.problems[:1])


async def later() -> int:
    return 1


def test_an_async_function_for_a_value_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=whole("workflow 'w': steps[0]: params['x']: must not be async: make it a step")
    ):
        define_workflow("w", [http_step("https://example.com/", params={"x": later})])


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{input.nothing}", "template {input.nothing}: input (a Order) has no 'nothing'"),
        (
            "{last_step.result.nothing}",
            "template {last_step.result.nothing}: last_step.result has no 'nothing'; it has x, _id",
        ),
        ("{input.note.deeper}", "template {input.note.deeper}: input.note (None) has no 'deeper'"),
        ("{input.lines[9]}", "template {input.lines[9]}: input.lines has 2 items: [9] does not exist"),
        ("{input.lines[x]}", "template {input.lines[x]}: input.lines is a list: [x] is not an index"),
        ("{input.order_id[0]}", "template {input.order_id[0]}: input.order_id is a str: it has no [0]"),
        (
            "{input.model_dump}",
            (
                "template {input.model_dump}: input has 'model_dump', but that is not data: templates cannot call "
                "functions"
            ),
        ),
        (
            "{input.order_id.upper}",
            (
                "template {input.order_id.upper}: input.order_id has 'upper', but that is not data: templates "
                "cannot call functions"
            ),
        ),
        (
            "a {input.note}",
            (
                "template {input.note} is None: only strings, numbers and dates can be part of a text. Make sure "
                "the value is present, or give a function."
            ),
        ),
        (
            "a {input.lines}",
            (
                "template {input.lines} is a list: only strings, numbers and dates can be part of a text. Make sure "
                "the value is present, or give a function."
            ),
        ),
    ],
)
def test_what_is_not_there_fails_the_step_with_the_place(template: str, said: str) -> None:
    with pytest.raises(StepError, match=whole(said)):
        filled(template)


def test_item_is_for_the_steps_of_a_for_each_only() -> None:
    def lines() -> list[int]:
        return [1]

    inside = http_step("https://example.com/{item}")
    assert define_workflow("w", [for_each("lines", items=lines, do=[inside])])
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: http_get: cannot inject parameter 'item': a step may ask for any of ctx, "
            "input, steps, last_step, state, log, run, or take the whole context as its only argument. Rename "
            "it, or give it a default. (item and index are for the steps of a for_each, index also for those of "
            "a loop.)"
        ),
    ):
        define_workflow("w", [inside])


# -- URLs -------------------------------------------------------------------------------------------------


def url_of(template: str, **names: Any) -> str:
    problems: list[str] = []
    part = parse_url(template, problems)
    assert problems == []
    return str(part.fill(SimpleNamespace(**names)))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a/b", "a%2Fb"),
        ("a?b=c#d", "a%3Fb%3Dc%23d"),
        ("@evil.example", "%40evil.example"),
        ("a\\b\r\nX: y", "a%5Cb%0D%0AX%3A%20y"),
        ("ä", "%C3%A4"),
        ("%2e%2e", "%252e%252e"),
        ("...", "..."),
        (7, "7"),
    ],
)
def test_a_value_in_a_url_is_data(value: Any, path: str) -> None:
    assert url_of("https://example.com/o/{item}/x", item=value) == f"https://example.com/o/{path}/x"


@pytest.mark.parametrize("value", ["..", ".", "../admin", "..\\admin", "a/../b", "", None])
def test_a_value_cannot_lead_a_url_elsewhere(value: Any) -> None:
    with pytest.raises(StepError):
        url_of("https://example.com/o/{item}/x", item=value)


def test_two_values_cannot_lead_a_url_elsewhere_together() -> None:
    with pytest.raises(StepError):
        url_of("https://example.com/o/{item}{item}/x", item=".")


def test_a_value_in_a_query_may_be_empty_or_dots() -> None:
    assert (
        url_of("https://example.com/o?x={item}&y={index}", item="", index="../") == "https://example.com/o?x=&y=..%2F"
    )


@pytest.mark.parametrize(
    "url",
    [
        "{input.url}",
        "https://{input.host}/",
        "https://api.{input.host}",
        "https://api{input.host}/x",
        "ftp://x/y",
        "//example.com/",
        "example.com",
        "",
        7,
        "file:///etc/passwd",
    ],
)
def test_a_host_that_is_a_template_or_no_url_is_refused_at_registration(url: Any) -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: url: give http:// or https://, a host and a path; templates only after the "
            "host. If the host itself varies, give a function: url=lambda input: …"
        ),
    ):
        define_workflow("w", [http_step(url)])


def test_a_function_may_give_any_url() -> None:
    assert define_workflow("w", [http_step(lambda input: input["callback"])])
