"""`rival limit`: list, show, set and remove, as an operator types it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rival_client.settings import Settings
from rival_workers import limit, rate, step
from tests.acceptance.conftest import Cli
from tests.support.inline import Inline
from tests.support.limits import Slots, work


@pytest.fixture
def slots(settings: Settings) -> Iterator[Slots]:
    """One step uses the limit, and two wait for it."""
    inline = Inline(settings.require_database())
    inline.define("w", step(work, concurrency_limit=limit("openai", 1)))
    inline.define("paced", step(work, rate_limit=rate("mail", 10, per=60)))
    slots = Slots(inline)
    slots.hold("a", "b", "c")
    yield slots
    inline.close()


LISTED = """
    limit  allowed  keys  used  waiting  set by
    mail  10 per 60 s  0  0  0
    openai  1 at once  1  1  2
"""


def test_a_limit_is_listed_shown_set_and_removed(cli: Cli, slots: Slots) -> None:
    cli("limit", "ls").prints(LISTED)
    cli("limit", "show", "openai").prints(
        """
        openai: 1 at once, 1 in use, 2 waiting
        key  used  waiting
        (all)  1  2
        run  step  key  since
        b  work  <time>
        c  work  <time>
        """
    )
    shown = cli("limit", "show", "openai", "--json").json
    assert shown["limit"] == cli("limit", "ls", "--json").json[1]
    assert [one["run_id"] for one in shown["waiting"]] == ["b", "c"]
    cli("limit", "set", "openai", "2").prints("openai: 2 at once")
    assert (slots.granted, slots.waiting) == (["b"], ["c"])
    changed = cli("limit", "set", "openai", "3", "--json").json
    assert (changed["max"], changed["defined_max"], changed["used"], changed["waiting"]) == (3, 1, 3, 0)
    assert changed["set_by"]
    assert cli("limit", "rm", "openai", "--json").json["max"] == 1
    cli("limit", "rm", "openai").prints("openai: 1 at once")


def test_a_limit_that_does_not_exist_is_an_error(shop: Cli) -> None:
    shop("limit", "ls").prints("no limits")
    shop("limit", "ls", "--json").prints_json([])
    for words in (("show", "openai"), ("set", "openai", "5"), ("rm", "openai")):
        shop("limit", *words, code=1).complains("rival: Unknown limit 'openai'. `rival limit ls` lists them.")
