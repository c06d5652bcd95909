"""Reload of workflow files: which changes are noticed, what is imported again, what stays when a file has an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rival_workers.cli.options.fleet_options import FleetOptions, with_fleet_options
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.runtime.reloading import Reloader, modules_below
from tests.support.output import is_printed, whole

SPEECH = "from reloaded_words import word\ndef says(): return word()\nsteps = [says]\n"


@pytest.fixture(autouse=True)
def unchanged_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class WatchedFiles:
    """A directory, a registry with its workflows, and a reloader that looks when the test calls it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registry = Registry()
        self.announced: list[tuple[str, str]] = []
        self.database_is_up = True

    def write(self, name: str, text: str) -> None:
        """All at the same time and often of the same length, as when a user changes a file twice in a second."""
        (self.directory / name).write_text(text)
        times = getattr(self, "times", 0)
        self.times = times + 1
        os.utime(self.directory / name, ns=(1_700_000_000_000_000_000 + times,) * 2)

    def follow(self, path: str = "") -> None:
        self.path = str(self.directory / path)
        register_paths([self.path], self.registry)
        self.reloader = Reloader([self.path], self.registry, self._announce)

    def _announce(self, workflow: WorkflowDefinition) -> None:
        if not self.database_is_up:
            raise ConnectionError("away")
        self.announced.append((workflow.name, workflow.version))

    def look(self) -> None:
        self.reloader.run_once()

    def newest(self, name: str = "speech") -> WorkflowDefinition:
        found = self.registry.newest(name)
        assert found is not None
        return found


def said(workflow: WorkflowDefinition, step: str = "says") -> Any:
    return workflow.calls[step].injection.function()


@pytest.fixture
def followed(tmp_path: Path) -> WatchedFiles:
    made = WatchedFiles(tmp_path)
    made.write("speech.py", SPEECH)
    made.write("reloaded_words.py", "def word(): return 'one'\n")
    return made


@pytest.mark.parametrize("path", ["", "speech.py"], ids=["directory", "file"])
def test_a_change_in_what_files_share_is_new_code_in_the_same_version(followed: WatchedFiles, path: str) -> None:
    followed.follow(path)
    old = followed.newest()
    followed.look()
    assert followed.newest() is old
    for word in ("two", "six", "ten"):
        followed.write("reloaded_words.py", f"def word(): return '{word}'\n")
        followed.look()
        assert said(followed.newest()) == word
    assert said(old) == "one"
    assert followed.registry.find("speech", old.version) is followed.newest()
    assert followed.announced == []


def test_other_steps_are_a_new_version_and_the_old_one_keeps_its_functions(followed: WatchedFiles) -> None:
    followed.follow()
    old = followed.newest()
    followed.write("reloaded_words.py", "def word(): return 'two'\n")
    followed.write("speech.py", SPEECH.replace("[says]", "[says, {'fn': says, 'name': 'again'}]"))
    followed.look()
    new = followed.newest()
    assert followed.announced == [("speech", new.version)]
    assert (said(new, "again"), said(old)) == ("two", "one")
    assert (followed.registry.find("speech", old.version), old.version != new.version) == (old, True)
    followed.look()
    assert len(followed.announced) == 1


def test_files_that_come_are_loaded_and_those_that_go_leave_their_workflows(followed: WatchedFiles) -> None:
    followed.follow()
    followed.write("more.py", "def one(): return 1\nsteps = [one]\n")
    followed.look()
    (followed.directory / "speech.py").unlink()
    followed.look()
    assert [name for name, _ in followed.announced] == ["more"]
    assert {workflow.name for workflow in followed.registry} == {"more", "speech"}


def test_another_input_is_announced_though_the_version_is_the_same(followed: WatchedFiles) -> None:
    followed.follow()
    followed.write("speech.py", SPEECH + "Input = dict[str, int]\n")
    followed.look()
    assert followed.announced == [("speech", followed.newest().version)]


def test_a_file_that_registers_by_itself_is_followed_too(
    followed: WatchedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rival_workers.definition.default_registry.default_registry", followed.registry)
    builder = "from rival_workers import create_workflow\ndef one(): return 1\ndef two(): return 2\n"
    followed.write("built.py", builder + "create_workflow('built').step(one).register()\n")
    followed.follow()
    followed.write("built.py", builder + "create_workflow('built').step(one).step(two).register()\n")
    followed.look()
    assert [node.name for node in followed.newest("built").body] == ["one", "two"]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("def (", " cannot be imported: SyntaxError: invalid syntax (speech.py, line 1) ("),
        ("steps = [7]", " workflow 'speech': steps[0]: 7 is not a step: "),
        ("import reloaded_words\nraise OSError", " cannot be imported: OSError: "),
    ],
    ids=["syntax", "steps", "import"],
)
def test_a_broken_file_is_reported_once_and_everything_stays_as_it_was(
    followed: WatchedFiles, caplog: pytest.LogCaptureFixture, broken: str, reason: str
) -> None:
    followed.follow()
    old, modules = followed.newest(), modules_below([followed.directory])
    followed.write("speech.py", broken)
    followed.look()
    followed.look()
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    what, why = record.message.splitlines()
    assert what == "speech.py cannot be loaded; the previous version stays:"
    assert is_printed([f"{followed.directory / 'speech.py'}:…{reason}…"], [why])
    assert followed.newest() is old
    assert [name for name in modules if "speech" in name]
    assert modules_below([followed.directory]).keys() == modules.keys()
    assert all(modules_below([followed.directory])[name] is modules[name] for name in modules if "speech" in name)
    followed.write("speech.py", SPEECH + "description = 'mended'\n")
    followed.look()
    assert followed.newest().description == "mended"


def test_each_file_is_loaded_or_refused_by_itself(followed: WatchedFiles, caplog: pytest.LogCaptureFixture) -> None:
    followed.follow()
    old = followed.newest()
    caplog.set_level("INFO", "rival.reload")
    flow = "from rival_workers import flow\n@flow('half')\ndef half(ctx): return 1\n"
    followed.write("broken.py", flow + "1 / 0\n")
    followed.write("more.py", "def one(): return 1\nsteps = [one]\n")
    followed.write("speech.py", SPEECH + "description = 'new'\n")
    followed.look()
    assert (followed.newest().description, old.description) == ("new", None)
    # What a file has registered before its error is not taken.
    assert {workflow.name for workflow in followed.registry} == {"more", "speech"}
    loaded, refused = [record.message for record in caplog.records][:2]
    assert loaded == "more.py, speech.py changed: loaded again"
    assert refused.startswith("broken.py cannot be loaded; the previous version stays:\n")
    caplog.clear()
    (followed.directory / "more.py").unlink()
    followed.look()
    assert [record.message for record in caplog.records] == [
        "more.py removed: what was loaded from it stays until the next start"
    ]
    followed.write("broken.py", flow)
    followed.look()
    assert "half" in followed.registry


def test_what_could_not_be_announced_is_announced_at_the_next_look(followed: WatchedFiles) -> None:
    followed.follow()
    followed.write("speech.py", SPEECH + "description = 'new'\n")
    followed.database_is_up = False
    with pytest.raises(ConnectionError):
        followed.look()
    followed.database_is_up = True
    followed.look()
    assert len(followed.announced) == 1


def test_what_is_installed_below_the_path_and_rival_itself_are_left_alone(followed: WatchedFiles) -> None:
    installed = followed.directory / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "installed_for_test.py").write_text("")
    sys.path.append(str(installed))
    followed.write("speech.py", "import installed_for_test\n" + SPEECH)
    followed.follow()
    below = modules_below([followed.directory])
    assert "reloaded_words" in below
    assert "installed_for_test" not in below
    root = Path(__file__).parents[2]
    assert not [name for name in modules_below([root]) if name.startswith(("rival_", "pydantic", "__main__"))]


def test_dev_follows_files_and_worker_does_so_when_asked() -> None:
    import click
    from click.testing import CliRunner

    seen: list[bool] = []

    @click.command()
    @with_fleet_options(processes=1, events=False, reload=True)
    def command(**options: Any) -> None:
        seen.append("--reload" in FleetOptions(**options).command(0))

    for arguments in ([], ["--no-reload"], ["--reload"]):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert seen == [True, False, True]


def test_an_unexpected_error_is_not_tried_again_before_the_next_change(followed: WatchedFiles) -> None:
    followed.follow()
    old = followed.newest()
    followed.write("speech.py", "class Odd(list):\n    def __iter__(self): raise OSError('odd')\nsteps = Odd([1])\n")
    with pytest.raises(OSError, match=whole("odd")):
        followed.look()
    followed.look()
    assert followed.newest() is old
