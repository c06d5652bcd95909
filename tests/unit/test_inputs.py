"""Inputs are checked as a worker reads them, formats of texts included."""

from __future__ import annotations

import datetime as dt
import ipaddress
import uuid
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, TypeAdapter, ValidationError

from rival_client import InvalidInput
from rival_client.model.inputs import InputValidator
from rival_client.model.workflow_info import WorkflowInfo
from tests.support.output import whole


class Visit(BaseModel):
    day: dt.date | None = None
    at: dt.datetime | None = None
    time: dt.time | None = None
    length: dt.timedelta | None = None
    id: uuid.UUID | None = None
    host: ipaddress.IPv4Address | None = None
    mail: Annotated[str | None, Field(json_schema_extra={"format": "email"})] = None


def validator(model: type[BaseModel]) -> InputValidator:
    info = WorkflowInfo("w", "1", None, TypeAdapter(model).json_schema(), {}, dt.datetime.now(dt.UTC))
    return InputValidator(info, 10_000)


@pytest.mark.parametrize(
    "given",
    [
        {"day": "x"},
        {"day": "2024-05-01"},
        {"day": "2024-05-32"},
        {"at": "2024-05-01T12:00:00Z"},
        {"at": "2024-05-01T12:00:00"},
        {"at": "noon"},
        {"time": "12:30"},
        {"time": "12:70"},
        {"length": "PT3S"},
        {"length": "1 day, 10:00:00"},
        {"length": "long"},
        {"id": "12345678123456781234567812345678"},
        {"id": "12345678-1234-5678-1234-567812345678"},
        {"id": "zz"},
        {"host": "10.0.0.1"},
        {"host": "10.0.0.300"},
        {"mail": "nobody"},
    ],
    ids=str,
)
def test_a_text_fits_if_the_model_can_read_it(given: dict[str, Any]) -> None:
    try:
        Visit.model_validate(given)
    except ValidationError:
        with pytest.raises(
            InvalidInput,
            match=whole('The input does not fit workflow \'w\'; no run was started:\n  - …: "…" is not a "…"'),
        ):
            validator(Visit).validate(given)
    else:
        validator(Visit).validate(given)


def test_a_problem_names_the_field_and_the_format_and_quotes_the_value_only_if_it_may() -> None:
    class Day(BaseModel):
        day: dt.date

    with pytest.raises(InvalidInput) as caught:
        validator(Day).validate({"day": "x"})
    assert caught.value.problems == ['day: "x" is not a "date"']
    with pytest.raises(InvalidInput) as caught:
        validator(Day).validate({"day": "x"}, quote=False)
    assert caught.value.problems == ['day: the value is not a "date"']


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: SecretStr
    months: int = Field(default=1, ge=1)


class Invoice(BaseModel):
    kind: Literal["invoice"] = "invoice"
    reference: str


class Sale(BaseModel):
    pay: Annotated[Card | Invoice, Field(discriminator="kind")]
    tip: Annotated[int, Field(ge=3)] | None = None
    code: int | list[int] = 0


PAID = {"kind": "invoice", "reference": "a"}


@pytest.mark.parametrize(
    ("given", "pointers"),
    [
        ({"pay": {"kind": "card"}}, ["/pay/number"]),
        ({"pay": {"kind": "card", "number": "1", "months": 0}}, ["/pay/months"]),
        ({"pay": {"kind": "invoice", "months": 0}}, ["/pay/reference"]),
        ({"pay": {"kind": "cash"}}, ["/pay"]),
        ({"pay": 7}, ["/pay"]),
        ({"pay": PAID, "tip": 1}, ["/tip"]),
        ({"pay": PAID, "code": ["x"]}, ["/code/0"]),
        ({"pay": PAID, "code": "x"}, ["/code"]),
    ],
    ids=str,
)
def test_of_several_types_the_problem_of_the_one_that_was_meant_is_named(given: Any, pointers: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        validator(Sale).validate(given)
    assert [one.pointer for one in caught.value.found] == pointers


def test_a_problem_within_one_of_several_types_quotes_the_value_only_if_it_may() -> None:
    secret = {"pay": {"kind": "card", "number": 4711}}
    with pytest.raises(
        InvalidInput,
        match=whole(
            "The input does not fit workflow 'w'; no run was started:\n  - pay.number: 4711 is not of type \"string\""
        ),
    ):
        validator(Sale).validate(secret)
    with pytest.raises(InvalidInput) as caught:
        validator(Sale).validate(secret, quote=False)
    assert "4711" not in str(caught.value)
