"""Forms from input models: schema, to the page, filled as a person would, to JSON, and back through the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pydantic import BaseModel

from tests.browser import forms, harder_forms
from tests.browser.conftest import OpenPage, follow
from tests.browser.filling import Filler


@pytest.fixture(scope="module")
def page(open_pages: OpenPage) -> Page:
    """One page for all forms: following a link inside the dashboard is faster than loading it."""
    return open_pages("workflows")


@pytest.mark.parametrize("model", forms.CASES, ids=lambda model: model.__name__)
def test_a_form_gives_what_its_model_accepts(model: type[BaseModel], page: Page) -> None:
    wanted: Any = forms.CASES[model]
    follow(page, f"workflows/{forms.name_of(model)}/start")
    page.locator(f"form[data-workflow={forms.name_of(model)}]").wait_for()
    filler = Filler(page)
    filler.fill(wanted)
    expect(page.locator("form.startf").get_by_text("fits", exact=True)).to_be_visible()
    made = filler.result()
    assert made == wanted
    model.model_validate(made)


#: Values that a run of another version may have had, or that were typed as JSON, and the ids of the
#: boxes that show them.
MISSHAPEN: list[tuple[type[BaseModel], Any, str]] = [
    (forms.Strings, {"names": "x"}, "f--names-json"),
    (forms.Order, {"lines": {"a": 1}}, "f--lines-json"),
    (forms.Tags, {"tags": {"a": 1}}, "f--tags-json"),
    (forms.Amounts, {"lines": [1]}, "f--lines-json"),
    (forms.Nested, {"person": "x"}, "f--person-json"),
    (forms.Text, {"name": {"a": 1}}, "f--name"),
    (harder_forms.EventsByDay, {"days": {"a": 5}}, "f--days--a-json"),
    (harder_forms.Unions, {"value": {"a": 1}}, "f--value"),
]


@pytest.mark.parametrize(("model", "value", "box"), MISSHAPEN, ids=lambda one: getattr(one, "__name__", None))
def test_a_value_of_another_shape_is_a_box_of_json_in_the_form(
    model: type[BaseModel], value: Any, box: str, page: Page
) -> None:
    follow(page, f"workflows/{forms.name_of(model)}/start")
    form = page.locator(f"form[data-workflow={forms.name_of(model)}]")
    form.get_by_role("tab", name="JSON").click()
    form.get_by_label("Input as JSON").fill(json.dumps(value))
    form.get_by_role("tab", name="Form").click()
    shown = form.locator(f'[id="{box}"]').input_value()
    assert json.loads(shown) in (value, *value.values(), 5)
    assert Filler(page).result() == value
