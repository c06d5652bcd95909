"""Who may know whom: read from the source, so that a wall cannot be broken unnoticed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rival_workers.cli.entry import EXTRA
from rival_workers.dashboard import api

ROOT = Path(__file__).parents[2]
PACKAGES = ("rival_client", "rival_workers")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

KNOW_CELERY = {
    "rival_workers/runtime/celery/app.py",
    "rival_workers/runtime/celery/consumer.py",
    "rival_workers/runtime/celery/remote_control.py",
    "rival_workers/runtime/celery/install.py",
    "rival_workers/runtime/celery/lifecycle.py",
    "rival_workers/runtime/celery/worker.py",
    "rival_workers/runtime/celery/threads_pool.py",
    "rival_workers/runtime/celery/run_intake.py",
    "rival_workers/predefined/celery_task.py",
    "rival_workers/library/inproc_worker.py",
    "rival_workers/library/inproc_transport.py",
}
#: Public names and commands are imported when first used; the others import users' files and optional packages.
IMPORT_LATE = {
    "rival_client/late_names.py",
    "rival_workers/cli/main.py",
    "rival_workers/cli/dashboard_launch.py",
    "rival_workers/cli/flower.py",
    "rival_workers/runtime/reloading.py",
    "rival_workers/definition/modules.py",
    "rival_workers/dev/binaries.py",
}
READ_THE_ENVIRONMENT = {"rival_client/settings.py", "rival_workers/settings.py"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    return name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module that the file imports, wherever in it, but not what only the type checker sees."""
    return set(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    tree = tree_of(path)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            yield str(node.module)


def under(module: str, *tops: str) -> bool:
    return any(module == top or module.startswith(top + ".") for top in tops)


def those_that_import(*tops: str, among: str = "") -> set[str]:
    return {
        name_of(path)
        for path in FILES
        if name_of(path).startswith(among) and any(under(module, *tops) for module in imports(path))
    }


#: What a producer shares with the workers: the operator verbs, which read plans with the engine and use the store.
SHARED = ("rival_workers.operations", "rival_workers.errors", "rival_workers.engine", "rival_workers.store")


def test_the_client_imports_only_the_operator_verbs_of_the_workers() -> None:
    assert those_that_import("rival_workers", among="rival_client/") == {"rival_client/api/base.py"}
    asked = {one for one in imports(ROOT / "rival_client/api/base.py") if under(one, "rival_workers")}
    assert asked == {"rival_workers.operations"}


def test_what_producers_share_with_the_workers_needs_nothing_else_of_them() -> None:
    """So that it needs no package of the extra either: the next test takes those away."""
    shared = [path for path in FILES if under(module_of(path), *SHARED) and "migrations" not in path.parts]
    assert len(shared) > 40
    for path in shared:
        others = {one for one in imports(path) if under(one, "rival_workers") and not under(one, *SHARED)}
        assert others == set(), name_of(path)


PREPARE = """
from rival_client.db import metadata
from rival_workers.engine.interpreter import first
from rival_workers.engine.plan import Plan, StepNode
from rival_workers.store import open_store
store = open_store("sqlite:///{file}")
metadata.create_all(store.database.engine)
plan = Plan(nodes=(StepNode(name="a"), StepNode(name="b")))
store.register_workflow("w", plan, None, None)
"""
OPERATOR_VERBS = """
from rival_client import Rival
rival = Rival("sqlite:///{file}")
rival.run("w", {{}}, "r")
store.begin_run("r", 0, first(plan), claim_for=None)
print(rival.pause("r"), rival.resume("r"))
rival.skip("r", "a", reason="test")
rival.set_result("r", "b", 7, reason="test")
print(rival.result("r").results)
print(rival.rewind("r", "b").opened, rival.cancel("r"), rival.retry("r").opened)
print(rival.bulk("cancel", ["r"]).done)
"""


@pytest.mark.slow
def test_every_operator_verb_works_without_the_workers_extra(tmp_path: Path) -> None:
    script = (PREPARE + OPERATOR_VERBS).format(file=tmp_path / "rival.db")
    done = run_without({*EXTRA, "flower", "billiard", "greenlet"} - {"typing_extensions"}, script)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True True", "{'a': None, 'b': 7}", "('b',) True ('b',)", "['r']"]


def test_nothing_is_imported_by_a_string_except_public_names_commands_and_users_files() -> None:
    # importlib.resources reads the package's own files; it does not import modules.
    used = {path: {one for one in imports(path) if under(one, "importlib")} for path in FILES}
    users = {name_of(path) for path, names in used.items() if names - {"importlib.resources"}}
    assert users <= IMPORT_LATE


def test_the_route_table_lists_every_module_in_the_folder_of_the_routes() -> None:
    folder = ROOT / "rival_workers/dashboard/api"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "filters"}
    assert sorted(modules) == api.__all__, "what several handlers share belongs into the folder above"


def test_the_client_knows_no_celery_alembic_or_rich() -> None:
    assert those_that_import("celery", "alembic", "rich", among="rival_client/") == set()


@pytest.mark.parametrize("package", ["definition", "engine", "drawing"])
def test_definition_and_engine_import_neither_store_nor_celery_nor_sql(package: str) -> None:
    forbidden = ("rival_workers.store", "rival_workers.runtime", "celery", "kombu", "sqlalchemy", "psycopg", "redis")
    assert those_that_import(*forbidden, among=f"rival_workers/{package}/") == set()


def test_the_engine_does_not_know_what_users_write() -> None:
    assert those_that_import("rival_workers.definition", among="rival_workers/engine/") == set()


def test_the_store_knows_no_runtime_and_no_celery() -> None:
    forbidden = ("rival_workers.runtime", "rival_workers.definition", "celery", "kombu", "redis")
    assert those_that_import(*forbidden, among="rival_workers/store/") == set()


def test_only_the_modules_that_say_so_know_celery() -> None:
    assert those_that_import("celery") <= KNOW_CELERY


def test_only_the_store_and_the_clients_reading_side_speak_sql() -> None:
    speak = those_that_import("sqlalchemy")
    assert {name for name in speak if not name.startswith(("rival_client/", "rival_workers/store/"))} == set()


def test_nothing_is_pickled() -> None:
    assert those_that_import("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve") == set()


def names_used(path: Path) -> set[str]:
    """Dotted names as they are written: os.environ, time.sleep."""
    return {ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}


def test_only_settings_read_the_environment() -> None:
    readers = {name_of(path) for path in FILES if names_used(path) & {"os.environ", "os.getenv", "os.environb"}}
    assert readers <= READ_THE_ENVIRONMENT


def sleeps(path: Path) -> list[str]:
    """The functions of a file in which something sleeps."""
    return [
        function.name
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep", "asyncio.sleep")
    ]


def test_no_worker_ever_sleeps_except_while_the_database_is_away() -> None:
    """The fleet's parent is not a worker: it waits for its children."""
    sleepers = {
        f"{path.name}:{function}"
        for path in FILES
        if name_of(path).startswith(("rival_workers/runtime/", "rival_workers/engine/", "rival_workers/store/"))
        and path.name != "fleet.py"
        for function in sleeps(path)
    }
    assert sleepers <= {"process.py:wait_for_database", "outage.py:wait"}


def test_every_module_says_what_it_is_for_in_a_sentence_or_two() -> None:
    silent = [name_of(path) for path in FILES if path.read_text().strip() and not ast.get_docstring(tree_of(path))]
    assert silent == []


BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)
sys.meta_path.insert(0, Blocker())
{statement}
"""


def run_without(blocked: set[str], statement: str) -> subprocess.CompletedProcess[str]:
    script = BLOCKER.format(blocked=blocked, statement=statement)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=110, cwd=ROOT, check=False
    )


def test_a_producer_needs_nothing_of_the_workers_extra() -> None:
    not_there = {"celery", "alembic", "rich", "greenlet", "flower", "billiard", "rival_workers"}
    # With the star: some names are only found when they are asked for.
    done = run_without(not_there, "from rival_client import *")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_workflow_file_can_be_imported_without_celery_and_without_sql() -> None:
    not_there = {"celery", "alembic", "rich", "kombu", "redis", "sqlalchemy", "psycopg", "httpx", "flower"}
    late = "{'EmbeddedRival', 'embedded', 'install'}"
    eager = f"import rival_workers as w; [getattr(w, name) for name in set(w.__all__) - {late}]"
    done = run_without(not_there, eager)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_worker_starts_without_what_only_some_workers_use() -> None:
    not_there = {"alembic", "mako", "pygments", "rich", "httpx"}
    done = run_without(not_there, "import rival_workers.runtime.celery.worker")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_does_not_wait_for_what_the_commands_need() -> None:
    not_there = {"celery", "alembic", "sqlalchemy", "psycopg", "redis", "kombu"}
    done = run_without(not_there, "from rival_workers.cli.main import cli; cli(['--help'])")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "args"), [("click", []), ("rich", ["ls"]), ("alembic", ["db", "upgrade"])])
def test_a_command_whose_packages_are_missing_says_what_to_install(missing: str, args: list[str]) -> None:
    given = f"import os; os.environ['RIVAL_DATABASE_URL'] = 'sqlite://'; sys.argv = ['rival', *{args}]"
    done = run_without({missing}, f"{given}\nfrom rival_workers.cli.entry import main; main()")
    needs = f"rival: this command needs the extra `workers` ({missing} is not installed)"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{needs}: pip install 'rival-workflows[workers]'\n"


def test_the_command_knows_the_packages_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [Requirement(one).name for one in project["optional-dependencies"]["workers"]]
    assert {name.replace("-", "_") for name in names} == EXTRA


def test_the_blocker_blocks() -> None:
    done = run_without({"sqlalchemy"}, "from rival_client import *")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: sqlalchemy is not installed"
