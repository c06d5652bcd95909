"""A run in its family: from the root down, bounded, with what is left out counted, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event, text

from rival_client import RunNode, RunNotFound
from rival_workers import flow, step
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline

MANY = 10_000


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url)
    yield opened
    opened.close()


def define(inline: Inline, name: str, body: Any) -> None:
    made = flow(name, registry=Registry())(body)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()


@pytest.fixture
def family(inline: Inline) -> Inline:
    """r calls a middle run, which spawns two leaves; then r spawns one."""
    inline.define("leaf", step(lambda: 1 / 0, name="divide"))
    define(inline, "middle", lambda ctx: [ctx.spawn("leaf"), ctx.spawn("leaf")])
    define(inline, "top", lambda ctx: [ctx.call("middle"), ctx.spawn("leaf")])
    inline.rival.run("top", run_id="r")
    inline.drain()
    return inline


def names(node: RunNode) -> Any:
    return {node.run_id: [names(child) for child in node.children]} if node.children else node.run_id


LEAVES = ["r/call:middle/spawn:leaf", "r/call:middle/spawn:leaf~2"]


@pytest.mark.parametrize("asked", ["r", "r/call:middle", LEAVES[1]])
def test_the_whole_family_is_shown_from_any_of_its_runs(family: Inline, asked: str) -> None:
    root = family.rival.tree(asked)
    assert names(root) == {"r": [{"r/call:middle": LEAVES}, "r/spawn:leaf"]}
    nodes = {node.run_id: (node.workflow, node.status, node.parent_path, node.is_awaited) for node in root.walk()}
    assert nodes["r"] == ("top", "completed", None, None)
    assert nodes["r/call:middle"] == ("middle", "completed", "top/call:middle", True)
    assert nodes["r/spawn:leaf"] == ("leaf", "failed", "top/spawn:leaf", False)
    assert all(node.duration is not None and not node.more for node in root.walk())


def test_below_begins_at_the_run_itself(family: Inline) -> None:
    assert names(family.rival.tree("r/call:middle", below=True)) == {"r/call:middle": LEAVES}
    assert names(family.rival.tree(LEAVES[0], below=True)) == LEAVES[0]
    with pytest.raises(RunNotFound):
        family.rival.tree("nobody")


def test_what_is_too_deep_or_too_many_is_counted(family: Inline) -> None:
    root = family.rival.tree("r", depth=1)
    assert [dict(child.more) for child in root.children] == [{"failed": 2}, {}]
    assert dict(family.rival.tree("r", depth=0).more) == {"completed": 1, "failed": 1}
    narrow = family.rival.tree("r", width=1)
    assert (names(narrow), dict(narrow.more)) == ({"r": [{"r/call:middle": LEAVES[:1]}]}, {"failed": 1})


def test_the_run_that_was_asked_for_is_shown_whatever_else_is_left_out(family: Inline) -> None:
    root = family.rival.tree(LEAVES[1], width=1)
    assert names(root) == {"r": [{"r/call:middle": LEAVES[1:]}]}
    assert dict(root.children[0].more) == {"failed": 1}


def test_a_run_whose_parent_has_been_deleted_is_its_own_root(family: Inline) -> None:
    with family.store.database.transaction() as connection:
        connection.execute(text("DELETE FROM rival_runs WHERE id = 'r'"))
    assert family.rival.tree(LEAVES[0]).run_id == "r/call:middle"


@pytest.mark.slow
def test_ten_thousand_children_are_answered_with_few_statements(inline: Inline) -> None:
    inline.define("leaf", step(lambda: 1, name="only"))
    inline.rival.run("leaf", run_id="r")
    children = [
        one.run_id for one in inline.rival.run_many("leaf", range(MANY), run_ids=[f"c{n}" for n in range(MANY)])
    ]
    with inline.store.database.transaction() as connection:
        connection.execute(
            text("UPDATE rival_runs SET parent_run_id = 'r', parent_path = 'f/spawn:leaf' WHERE id <> 'r'")
        )
    statements: list[str] = []
    event.listen(inline.store.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    root = inline.rival.tree(children[-1], width=50)
    assert (len(root.children), root.more["pending"]) == (50, MANY - 50)
    assert children[-1] in [child.run_id for child in root.children]
    assert len([one for one in statements if "rival_runs" in one]) == 4
