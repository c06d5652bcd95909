"""A file is a workflow: names, order, and every problem of every file at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rival_workers import DefinitionError, flow, register_workflow_file, register_workflows_from_directory
from rival_workers.definition.default_registry import registering_in
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import Registry
from tests.support.output import as_expected, whole

PLAIN = "def one(): return 1\nsteps = [one]\n"


@pytest.fixture(autouse=True)
def unchanged_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(directory: Path, name: str, text: str = PLAIN) -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def names(directory: Path) -> list[str]:
    return [w.name for w in register_workflows_from_directory(directory, Registry())]


def test_the_file_name_is_the_workflows_name_unless_it_gives_one(tmp_path: Path) -> None:
    registry = Registry()
    assert register_workflow_file(write(tmp_path, "tree_processing.py"), registry).name == "tree-processing"
    named = register_workflow_file(write(tmp_path, "other.py", PLAIN + "name = 'Own Name'\n"), registry)
    assert named.name == "Own Name"
    assert {w.name for w in registry} == {"tree-processing", "Own Name"}


def test_input_description_and_handler_are_taken_from_the_module(tmp_path: Path) -> None:
    text = """
from pydantic import BaseModel
class Input(BaseModel):
    kind: str
description = "chops"
def on_error(error): ...
def one(input: Input): return input.kind
steps = [one]
"""
    workflow = register_workflow_file(write(tmp_path, "w.py", text), Registry())
    assert workflow.description == "chops"
    assert workflow.plan.on_error
    assert workflow.input_schema is not None
    assert workflow.read_input({"kind": "oak"}).kind == "oak"


def test_a_directory_is_read_in_a_stable_order_with_its_subdirectories(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "sub/c.py", "sub/a_two.py"):
        write(tmp_path, name)
    assert names(tmp_path) == ["a", "b", "a-two", "c"]
    assert names(tmp_path) == names(tmp_path)


def test_hidden_files_and_modules_without_steps_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    write(tmp_path, "shared.py", "def helper(): ...\n")
    for name in ("_private.py", ".hidden.py", "_dir/b.py", ".dir/b.py", "__init__.py"):
        write(tmp_path, name, "raise RuntimeError('must not be imported')")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("where", [".rival/workflows", "_work/flows"])
def test_where_the_directory_itself_lies_does_not_matter(tmp_path: Path, where: str) -> None:
    write(tmp_path / where, "a.py")
    assert names(tmp_path / where) == ["a"]


def test_a_relative_path_through_a_parent_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "flows", "a.py")
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path / "app")
    assert names(Path("../flows")) == ["a"]


def test_a_file_can_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "shared_by_unit_test.py", "def one(): return 1\n")
    file = write(tmp_path, "w.py", "from shared_by_unit_test import one\nsteps = [one]\n")
    assert register_workflow_file(file, Registry()).body[0].name == "one"


def test_two_files_of_the_same_name_in_two_directories_do_not_meet(tmp_path: Path) -> None:
    first = write(tmp_path, "a/w.py", PLAIN + "name = 'first'\n")
    second = write(tmp_path, "b/w.py", PLAIN + "name = 'second'\n")
    assert [w.name for w in register_paths([first, second], Registry())] == ["first", "second"]


def test_a_file_without_steps_is_reported_with_what_is_missing(tmp_path: Path) -> None:
    file = write(tmp_path, "w.py", "def one(): return 1\n")
    for register in (register_workflow_file, lambda f, r: register_paths([f], r)):
        with pytest.raises(DefinitionError) as caught:
            register(file, Registry())
        assert str(caught.value) == f"{file}: no `steps` list: add steps = [first, second, …]"


def test_a_file_that_registers_by_itself_needs_no_steps_list(tmp_path: Path) -> None:
    from rival_workers.definition.default_registry import default_registry

    text = """
from rival_workers import create_workflow
def one(): return 1
create_workflow("unit-test-registers-itself").step(one).register()
"""
    register_paths([write(tmp_path, "w.py", text)])
    assert "unit-test-registers-itself" in default_registry


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("x = 1\nimport no_such_module_anywhere\nsteps = []\n", "ModuleNotFoundError", 2),
        ("x = 1\n\nraise ValueError('broken')\n", "ValueError", 3),
        ("x = 1\ndef f(:\n", "SyntaxError", 2),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_the_line(tmp_path: Path, text: str, kind: str, line: int) -> None:
    file = write(tmp_path, "w.py", text)
    with pytest.raises(DefinitionError) as caught:
        register_workflow_file(file, Registry())
    [problem] = caught.value.problems
    expected = f"{file}: cannot be imported: {kind}: … ({file}:{line})"
    assert as_expected(expected, problem) == expected


def test_an_error_in_an_imported_neighbour_names_the_neighbours_line(tmp_path: Path) -> None:
    neighbour = write(tmp_path, "broken_neighbour_of_unit_test.py", "\n1 / 0\n")
    file = write(tmp_path, "w.py", "import broken_neighbour_of_unit_test\nsteps = []\n")
    with pytest.raises(DefinitionError) as caught:
        register_workflow_file(file, Registry())
    error = "ZeroDivisionError: division by zero"
    assert str(caught.value) == f"{file}: cannot be imported: {error} ({neighbour}:2)"


def test_all_problems_of_all_files_come_at_once_in_the_order_of_the_files(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "1 / 0\n")
    write(tmp_path, "b.py", "steps = []\n")
    write(tmp_path, "c.py", "def f(axe, tree): ...\nsteps = [f, 3]\n")
    write(tmp_path, "d.py")
    with pytest.raises(DefinitionError) as caught:
        register_paths([tmp_path, tmp_path / "nowhere"], Registry())
    problems = caught.value.problems
    assert [Path(p.split(":")[0]).name for p in problems] == ["a.py", "b.py", "c.py", "c.py", "nowhere"]


def test_what_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=whole("…nowhere: this directory does not exist")):
        register_workflows_from_directory(tmp_path / "nowhere", Registry())
    with pytest.raises(DefinitionError, match=whole("…nowhere.py: this file does not exist")):
        register_workflow_file(tmp_path / "nowhere.py", Registry())
    with pytest.raises(DefinitionError, match=whole("…notes.txt: is not a Python file")):
        register_workflow_file(write(tmp_path, "notes.txt"), Registry())


# -- references between files ---------------------------------------------------------------------------------

NESTING = "from rival_workers import workflow\ndef one(): return 1\nsteps = [one, workflow({!r})]\n"


def problems_of(directory: Path) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        register_workflows_from_directory(directory, Registry())
    return caught.value.problems


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (
            "def one(axe, tree): ...\nsteps = [one]\n",
            ":2: workflow 'payment': steps[0]: one: cannot inject parameters 'axe', 'tree': …",
        ),
        (
            "import nothing_of_the_kind\nsteps = []\n",
            ": cannot be imported: ModuleNotFoundError: No module named 'nothing_of_the_kind' (…:1)",
        ),
        ("import sys\nsys.exit(3)\n", ": cannot be imported: SystemExit: 3 (…:2)"),
    ],
)
def test_a_broken_file_is_reported_once_however_many_refer_to_it(tmp_path: Path, broken: str, words: str) -> None:
    write(tmp_path, "payment.py", broken)
    write(tmp_path, "a_first.py", NESTING.format("./payment.py"))
    write(tmp_path, "sub/second.py", NESTING.format("../payment.py"))
    write(tmp_path, "zed.py", "def one(): return 1\nsteps = [one, 7]\n")
    found = problems_of(tmp_path)
    zed = f"{tmp_path / 'zed.py'}:2: workflow 'zed': steps[1]: 7 is not a step: give a function, step(function, …) or …"
    expected = [f"{tmp_path / 'payment.py'}{words}", zed]
    assert as_expected(expected, found) == expected


@pytest.mark.parametrize(("first", "second"), [("./b.py", "./a.py"), ("b", "a"), ("b", "./a.py")])
def test_files_that_contain_one_another_are_reported_once(tmp_path: Path, first: str, second: str) -> None:
    write(tmp_path, "a.py", NESTING.format(first))
    write(tmp_path, "b.py", NESTING.format(second))
    place = f"{tmp_path}/b.py:3"
    assert problems_of(tmp_path) == [
        f"{place}: workflow 'b': steps[1]: workflows contain one another: a.py → b.py → a.py ({place})"
    ]
    # Longer: Python compares a file with its compiled form by size and second.
    write(tmp_path, "a.py", NESTING.format("./a.py") + "# another\n")
    write(tmp_path, "b.py")
    place = f"{tmp_path}/a.py:3"
    assert problems_of(tmp_path) == [
        f"{place}: workflow 'a': steps[1]: workflows contain one another: a.py → a.py ({place})"
    ]


def test_a_problem_has_the_line_of_what_it_is_about(tmp_path: Path) -> None:
    text = """from rival_workers import branch, step

def one(): return 1

def on_error(axe, tree): ...

input = 3
steps = [
    one,
    step(one, timeuot=3),
    branch("way", when=one, then=[]),
    branch("other way", when=one, then=[one]),
]
"""
    file = write(tmp_path, "w.py", text)
    found = problems_of(tmp_path)
    lines = [int(problem.removeprefix(f"{file}:").partition(":")[0]) for problem in found]
    assert lines == [10, 10, 11, 12, 5, 7], found
    assert found[2] == f"{file}:11: workflow 'w': steps[2] 'way': then is empty: give at least one step ({file}:11)"


def test_lower_case_input_is_the_input_too(tmp_path: Path) -> None:
    file = write(tmp_path, "w.py", PLAIN + "input = dict[str, int]\n")
    assert register_workflow_file(file, Registry()).input_schema is not None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "def on_errors(error): ...\n",
            "…w.py: on_errors is not on_error: call it on_error if it is the workflow's handler",
        ),
        ("def onError(e): ...\n", "…w.py: onError is not on_error: call it on_error if it is the workflow's handler"),
        ("class Inputs: ...\n", "…w.py: Inputs is not Input: call it Input if it is the workflow's input"),
    ],
)
def test_a_name_that_is_nearly_one_of_rivals_is_refused(tmp_path: Path, more: str, words: str) -> None:
    file = write(tmp_path, "w.py", PLAIN + more)
    with pytest.raises(DefinitionError, match=whole(words)):
        register_workflow_file(file, Registry())
    register_workflow_file(
        write(tmp_path, "v.py", PLAIN + "names = inputs = [1]\ndef on_error_of(x): ...\n"), Registry()
    )


@pytest.mark.parametrize("name", ["step", "Steps", "stpes", "STEPS", "step_s"])
def test_a_misspelt_list_of_steps_is_reported_with_its_line(tmp_path: Path, name: str) -> None:
    write(tmp_path, "good.py")
    file = write(
        tmp_path, "bad.py", f"from rival_workers import step as _step\ndef one(): ...\n{name} = [_step(one), one]\n"
    )
    expected = whole(f"{file}:3: found {name} = [2 steps], but no `steps`: rename it to steps")
    for register in (
        lambda: register_workflows_from_directory(tmp_path, Registry()),
        lambda: register_paths([file], Registry()),
        lambda: register_workflow_file(file, Registry()),
    ):
        with pytest.raises(DefinitionError, match=expected):
            register()


def test_what_only_sounds_like_steps_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    write(
        tmp_path, "shared.py", "from rival_workers import step\nstep_names = ['one']\nStep = list[int]\nsteps_ = []\n"
    )
    assert names(tmp_path) == ["a"]


FLOW = "from rival_workers import flow\n@flow('{0}')\ndef one(ctx, input): return 1\n"


def test_a_file_with_only_a_flow_is_registered_by_itself(tmp_path: Path) -> None:
    registry, file = Registry(), write(tmp_path, "onboarding.py", FLOW.format("welcome"))
    assert register_workflow_file(file, registry).name == "welcome"
    assert register_workflow_file(file, registry) is registry.newest("welcome")
    assert [w.name for w in registry] == ["welcome"]


def test_a_flow_and_steps_of_one_name_are_refused_with_what_to_remove(tmp_path: Path) -> None:
    file = write(tmp_path, "welcome.py", FLOW.format("welcome") + "steps = [one]\n")
    registry = Registry()
    with registering_in(registry), pytest.raises(DefinitionError) as caught:
        register_paths([file], registry)
    [problem] = caught.value.problems
    assert problem == (
        f"{file}: workflow 'welcome' is registered already, from {file}:2: remove `steps`, since the file registers "
        "this workflow already, or give one of them another name"
    )


def test_an_import_error_names_the_users_line_that_causes_it(tmp_path: Path) -> None:
    texts = {
        "lib.py": "import json\n\nVALUES = json.loads('{x')\nsteps = []\n",
        "missing.py": "x = 1\nimport there_is_no_such_module\n",
        "syntax.py": "x = 1\n\ndef (:\n",
        "models.py": "from pydantic import BaseModel\nclass M(BaseModel):\n    n: int\nM(n='x')\n",
        "through.py": "from helper_of_it import f\n\nf()\n",
    }
    write(tmp_path, "helper_of_it.py", "def f():\n    return int('x')\n")
    for name, text in texts.items():
        write(tmp_path, name, text)
    with pytest.raises(DefinitionError) as caught:
        register_workflows_from_directory(tmp_path, Registry())
    expected = [
        f"{tmp_path}/lib.py: cannot be imported: JSONDecodeError: … ({tmp_path}/lib.py:3, in raw_decode of decoder.py)",
        f"{tmp_path}/missing.py: cannot be imported: ModuleNotFoundError: … ({tmp_path}/missing.py:2)",
        f"{tmp_path}/models.py: cannot be imported: ValidationError: … ({tmp_path}/models.py:4, in …)",
        f"{tmp_path}/syntax.py: cannot be imported: SyntaxError: … ({tmp_path}/syntax.py:3)",
        f"{tmp_path}/through.py: cannot be imported: ValueError: … ({tmp_path}/helper_of_it.py:2)",
    ]
    found = [" ".join(one.split()) for one in caught.value.problems]
    assert as_expected(expected, found) == expected


def test_a_flow_without_parentheses_says_what_is_missing() -> None:
    def sign_up(ctx: object) -> None: ...

    with pytest.raises(TypeError, match=whole("@flow needs parentheses: @flow() or @flow('sign-up')")):
        flow(sign_up)  # type: ignore[arg-type]
