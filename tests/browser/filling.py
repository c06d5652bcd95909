"""Fills a form made from an input model the way a person would, with any JSON value. It knows the ids of the fields and
the words on the buttons, nothing of the schema."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Locator, Page


def id_of(pointer: str) -> str:
    named = re.sub(r"[^\w-]", lambda found: f"_{ord(found[0]):x}_", pointer.replace("/", "--"), flags=re.ASCII)
    return "f" + (named or "-root")


def pointer_to(pointer: str, key: object) -> str:
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


class Filler:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.form = page.locator("form.startf")

    def fill(self, value: Any, pointer: str = "") -> None:
        if value is None:
            self._none(pointer, True)
        elif isinstance(value, dict):
            self._object(value, pointer)
        elif isinstance(value, list):
            self._list(value, pointer)
        else:
            self._scalar(value, pointer)

    def result(self) -> Any:
        self.form.get_by_role("tab", name="JSON").click()
        return json.loads(self.form.get_by_label("Input as JSON").input_value() or "{}")

    # -- parts ------------------------------------------------------------------------------------------------

    def _at(self, pointer: str) -> Locator:
        return self.form.locator(f'[id="{id_of(pointer)}"]')

    def _block(self, pointer: str) -> Locator:
        union = self.form.locator(f'[id="{id_of(pointer)}-set"]')
        return union if union.count() else self._at(pointer)

    def _none(self, pointer: str, wanted: bool) -> None:
        switch = self.form.locator(f'[id="{id_of(pointer)}-none"]')
        if switch.count() and switch.is_checked() != wanted:
            switch.set_checked(wanted)

    def _opened(self, pointer: str) -> Locator:
        block = self._block(pointer)
        add = block.locator(":scope > legend").get_by_role("button", name="fill in")
        if add.count():
            add.click()
        self._none(pointer, False)
        return block

    def _object(self, value: dict[str, Any], pointer: str) -> None:
        if pointer:
            block = self._opened(pointer)
            if block.evaluate("one => one.tagName") == "TEXTAREA":
                block.fill(json.dumps(value))
                return
            self._pick(block, pointer, value)
        for key, inner in value.items():
            if self._is_constant(pointer, key, inner):
                continue
            if self._block(pointer_to(pointer, key)).count() == 0:
                self._add_name(pointer, key)
            self.fill(inner, pointer_to(pointer, key))

    def _is_constant(self, pointer: str, key: str, inner: Any) -> bool:
        """The field in which variants differ is not drawn: the picker sets it."""
        return key == "kind" and self._block(pointer_to(pointer, key)).count() == 0

    def _pick(self, block: Locator, pointer: str, value: dict[str, Any]) -> None:
        """The variant that has all fields of the value."""
        for radio in block.locator(":scope > legend, :scope").locator(":scope > .seg[role=radiogroup] > button").all():
            if all(self._block(pointer_to(pointer, key)).count() for key in value if key != "kind"):
                return
            radio.click()

    def _add_name(self, pointer: str, key: str) -> None:
        more = self._at(f"{pointer}/")
        owner = more if more.count() else self._at(pointer)
        owner.get_by_role("button", name="+ Add").last.click()
        owner.get_by_label(re.compile(r"^Name \d+$")).last.fill(key)

    def _list(self, value: list[Any], pointer: str) -> None:
        block = self._opened(pointer)
        as_list = block.locator(":scope > legend").get_by_role("radio", name="list", exact=True)
        if as_list.count():
            as_list.click()
        boxes = block.locator(".chk")
        if boxes.count():
            for one in value:
                block.get_by_label(str(one)).check()
            return
        for at, inner in enumerate(value):
            if not self._has_row(block, pointer, at):
                block.locator(":scope > .in-set > div > button", has_text="+ Add").click()
            self.fill(inner, pointer_to(pointer, at))

    def _has_row(self, block: Locator, pointer: str, at: int) -> bool:
        rows = block.locator(":scope > .in-set > .items > tbody > tr")
        prefix = id_of(pointer_to(pointer, at))
        return rows.count() > at or block.locator(f'[id="{prefix}"], [id="{prefix}-set"]').count() > 0

    def _scalar(self, value: Any, pointer: str) -> None:
        self._none(pointer, False)
        union = self.form.locator(f'[id="{id_of(pointer)}-set"]')
        if union.count():
            name = {str: "str|date", int: "int", float: "number"}[type(value)]
            union.get_by_role("radio", name=re.compile(f"^({name})$")).click()
        control = self._at(pointer)
        kind = control.evaluate("one => one.type || one.getAttribute('role')")
        if kind == "radiogroup":
            control.get_by_role("radio", name=_word(value), exact=True).click()
        elif kind == "checkbox":
            control.set_checked(value)
        elif kind == "select-one":
            control.select_option(label=str(value))
        else:
            control.fill(str(value))


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
