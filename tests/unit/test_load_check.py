"""The example of an input that `rival dev` prints."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from rival_workers.cli.load_check import example_input


class Colour(enum.Enum):
    RED = "red"


class Line(BaseModel):
    sku: str
    quantity: Annotated[int, Field(ge=2)]


class Tree(BaseModel):
    name: str
    left: Tree | None
    others: list[Tree]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]


class Order(BaseModel):
    customer: str = Field(examples=["ann"])
    lines: Annotated[list[Line], Field(min_length=1)]
    colour: Colour
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    price: Decimal
    when: dt.datetime
    day: dt.date
    at: dt.time
    length: dt.timedelta
    id: uuid.UUID
    anything: dict[str, Any]
    note: str = "none"


@pytest.mark.parametrize("model", [Line, Tree, Order, int, str, bool, float, list[Line], dict[str, int], None])
def test_an_example_fits_the_model(model: Any) -> None:
    adapter = TypeAdapter(model)
    adapter.validate_python(example_input(adapter.json_schema()))


def test_an_example_has_what_is_required_and_takes_the_examples_of_the_model() -> None:
    example = example_input(Order.model_json_schema())
    assert example["customer"] == "ann"
    assert example["lines"] == [{"sku": "text", "quantity": 2}]
    assert "note" not in example


def test_a_workflow_without_a_model_takes_an_empty_object() -> None:
    assert example_input({}) == {}
