"""Forms from input models: schema, to the page, filled as a person would, to JSON, and back through the model."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pydantic import BaseModel

from tests.browser import forms
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
