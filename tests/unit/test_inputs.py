"""Inputs are checked as a worker reads them, formats of texts included."""

from __future__ import annotations

import datetime as dt
import ipaddress
import uuid
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from rival_client import InvalidInput
from rival_client.model.inputs import InputValidator
from rival_client.model.workflow_info import WorkflowInfo


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
        with pytest.raises(InvalidInput, match="no run was started"):
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
