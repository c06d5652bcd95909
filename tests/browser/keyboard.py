"""A person without a mouse: Tab to a control, keys to use it."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

_HAS_FOCUS = "one => one === document.activeElement"
#: More presses of Tab than any page has controls.
_MOST = 250


class Keyboard:
    def __init__(self, page: Page) -> None:
        self._page = page

    def tab_to(self, control: Locator) -> None:
        control.wait_for()
        for _ in range(_MOST):
            if control.evaluate(_HAS_FOCUS):
                return
            self._page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not come to {control}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)

    def button(self, name: str, within: Locator | None = None) -> None:
        """Use a button, when it can be used: a preview must be there before what it shows can be done."""
        control = (within or self._page.get_by_role("main")).get_by_role("button", name=name, exact=True)
        self.tab_to(control)
        expect(control).to_be_enabled()
        self.press("Enter")

    def menu(self, name: str, item: str) -> None:
        """Open a menu and use one of its entries."""
        self.button(name)
        wanted = self._page.get_by_role("menuitem", name=re.compile(f"^{re.escape(item)}"))
        wanted.wait_for()
        for _ in range(_MOST):
            if wanted.evaluate(_HAS_FOCUS):
                break
            self.press("ArrowDown")
        self.press("Enter")

    def fill(self, label: str, text: str, within: Locator | None = None) -> None:
        field = (within or self._page).get_by_label(label)
        self.tab_to(field)
        self.press("Control+a")
        self._page.keyboard.type(text)
        expect(field).to_have_value(text)
