"""The reference lists every public class, method, parameter, field, error and column, and nothing that does not exist.

Members are read with `inspect.getmembers`, so what a class inherits counts. In tables of the reference the first column
holds the members in code spans: methods with their parameters, attributes without parentheses.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

import pytest

import rival_client
import rival_workers
from rival_client import AsyncRival, AsyncStarted, AsyncWorkflowRegistry, Rival, RivalError, Started, WorkflowRegistry
from rival_client.api.handles import RunHandle
from rival_client.api.instances import AsyncInstance, AsyncWorkflow, Instance, Workflow
from rival_workers import AsyncFlowContext, Context, FlowContext, create_workflow, testing
from rival_workers.dashboard.problem_json import Refused, as_document
from tests.support.documents import ON_GITHUB, Page
from tests.support.workers import ROOT

PACKAGES = (rival_client, rival_workers, testing)
#: Public by name, but for Rival's own modules.
INTERNAL = {
    "Rival": {"settings", "database", "publisher", "event_publisher", "gather_publisher"},
    "AsyncRival": {"THREADS"},
    "RunFilter": {"checked"},
    "DeadLetterFilter": {"checked"},
    "ScheduleRecord": {"rule"},
    "Context": {
        "beats",
        "call_function",
        "failed_step_name",
        "has_state",
        "previous",
        "read_clock",
        "read_event",
        "read_input",
        "read_item",
        "read_overrides",
        "read_remaining",
        "token",
        "undoes",
        "where",
    },
    "FlowContext": {"call_function", "calls", "find_workflow", "of", "commits", "policies", "scheduler"},
    "StepLog": {"end", "give_up", "is_muted", "level", "store", "waiting"},
    "Steps": {"at"},
    "Handle": {"operation"},
    "ChildHandle": {"wait_for_it"},
}


def page(name: str) -> Page:
    return Page(ROOT / "docs" / "reference" / name)


# -- signatures ---------------------------------------------------------------------------------------------------


def shown(name: str, function: Callable[..., Any]) -> str:
    """The call as the reference writes it: `run(workflow, input=None, *, connection=None)`."""
    # `unknown` collects what is refused with a clear error.
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "unknown")]
    parts: list[str] = []
    for index, one in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if one.kind is one.KEYWORD_ONLY and before not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            parts.append("*")
        if before is one.POSITIONAL_ONLY and one.kind is not one.POSITIONAL_ONLY:
            parts.append("/")
        parts.append(_parameter(one))
    return f"{name}({', '.join(parts)})"


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    return f"{stars}{one.name}" + ("" if one.default is one.empty else f"={_value(one.default)}")


def _value(default: Any) -> str:
    if default is ...:
        return "..."
    if isinstance(default, str):
        return json.dumps(default, ensure_ascii=False)
    return f"{default:g}" if isinstance(default, float) else repr(default)


# -- members ------------------------------------------------------------------------------------------------------


def members(cls: type) -> set[str]:
    """Methods as calls, everything else by its name; also attributes that `__init__` sets."""
    found: set[str] = set()
    for name, member in inspect.getmembers(cls):
        if name.startswith("_") or _is_builtin(cls, name):
            continue
        found.add(shown(name, member) if inspect.isfunction(member) else name)
    return found | {name for name in attributes(cls) if not any(one.partition("(")[0] == name for one in found)}


def _is_builtin(cls: type, name: str) -> bool:
    owner = next(base for base in cls.__mro__ if name in vars(base))
    return not owner.__module__.startswith("rival_")


def attributes(cls: type) -> set[str]:
    """Fields of a dataclass, and what the constructors of the class and of its bases assign to `self`."""
    found = {one.name for one in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for base in cls.__mro__:
        if base.__module__.startswith("rival_") and "__init__" in vars(base) and not dataclasses.is_dataclass(base):
            found |= set(_assigned(vars(base)["__init__"]))
    return {name for name in found if not name.startswith("_") and name != "args"}


@functools.cache
def _assigned(function: Callable[..., Any]) -> tuple[str, ...]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return tuple(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    )


@dataclass(frozen=True)
class Documented:
    """A class, and the heading of the section that lists its members."""

    cls: type
    page: str
    heading: str
    #: Listed in the section of this class already.
    beyond: type | None = None

    @property
    def name(self) -> str:
        return self.cls.__name__

    def expected(self) -> set[str]:
        own = members(self.cls) - (members(self.beyond) if self.beyond else set())
        hidden = INTERNAL.get(self.name, set()) | (INTERNAL.get(self.beyond.__name__, set()) if self.beyond else set())
        return {one for one in own if one.partition("(")[0] not in hidden}


BUILDER = type(create_workflow("x"))
START = get_type_hints(FlowContext.start.fget)["return"]
CLASSES = [
    Documented(Rival, "client.md", "`Rival`"),
    Documented(Started, "client.md", "`Started`"),
    Documented(Workflow, "client.md", "`Workflow`"),
    Documented(Instance, "client.md", "`Instance`", beyond=RunHandle),
    Documented(WorkflowRegistry, "client.md", "`WorkflowRegistry`"),
    Documented(Context, "steps.md", "`Context`"),
    Documented(rival_workers.RunInfo, "steps.md", "`RunInfo`"),
    Documented(rival_workers.StepView, "steps.md", "`StepView`"),
    Documented(rival_workers.HookEvent, "steps.md", "`HookEvent`"),
    Documented(rival_workers.StepLog, "steps.md", "`StepLog`"),
    Documented(rival_workers.WorkflowState, "steps.md", "`WorkflowState`"),
    Documented(FlowContext, "steps.md", "`FlowContext`", beyond=Context),
    Documented(START, "steps.md", "`ctx.start`"),
    Documented(rival_workers.Handle, "steps.md", "`Handle`"),
    Documented(rival_workers.ChildHandle, "steps.md", "`ChildHandle`"),
    Documented(rival_workers.First, "steps.md", "`First`"),
    Documented(rival_workers.Received, "steps.md", "`Received`"),
    Documented(BUILDER, "steps.md", "The builder"),
    Documented(rival_workers.Schedule, "steps.md", "`Schedule`"),
    Documented(testing.Lab, "testing.md", "`Lab`"),
    Documented(testing.LabRun, "testing.md", "`LabRun`"),
    Documented(testing.TimelineEntry, "testing.md", "`TimelineEntry`"),
]
#: Async form -> sync form: the same members with the same parameters, so they need no list of their own.
PAIRS = {
    AsyncRival: Rival,
    AsyncStarted: Started,
    AsyncWorkflow: Workflow,
    AsyncInstance: Instance,
    AsyncWorkflowRegistry: WorkflowRegistry,
    AsyncFlowContext: FlowContext,
}


@pytest.mark.parametrize("documented", CLASSES, ids=lambda one: one.name)
def test_every_member_of_a_class_is_in_its_section_and_nothing_else(documented: Documented) -> None:
    section = page(documented.page).section(documented.heading)
    assert section, f"{documented.page} has no section {documented.heading}"
    listed = {span for cell in first_cells(section) for span in re.findall(r"`([^`]+)`", cell)}
    expected = documented.expected()
    where = f"{documented.page}, section {documented.heading}"
    assert not (missing := sorted(expected - listed)), f"{where}: add {missing}"
    assert not (unknown := sorted(listed - expected)), f"{where}: {documented.name} does not have {unknown}"


def first_cells(section: str) -> list[str]:
    """The first cells of the rows of a section's tables, without headers. A section that lists arguments of a
    constructor does so under `argument`."""
    cells, in_members = [], False
    for line in section.splitlines():
        if not line.startswith("|"):
            in_members = False
            continue
        cell = line.strip("|").split(" | ")[0].strip()
        if set(cell) <= {"-", " ", "|"}:
            continue
        if not in_members and "`" not in cell:
            in_members = cell in ("method", "name", "member")
            continue
        if in_members:
            cells.append(cell)
    return cells


@pytest.mark.parametrize(("asynchronous", "sync"), PAIRS.items(), ids=lambda cls: cls.__name__)
def test_an_async_class_has_the_members_of_its_sync_form(asynchronous: type, sync: type) -> None:
    hidden = INTERNAL.get(sync.__name__, set()) | INTERNAL.get(asynchronous.__name__, set())
    left, right = ({one for one in members(cls) if one.partition("(")[0] not in hidden} for cls in (asynchronous, sync))
    assert left == right


#: Exported classes whose members the reference does not list, and why.
WITHOUT_A_LIST = {
    "EmbeddedRival": "has the members of Rival, and one of its own that is in the text",
    "PolicyRules": "a tuple; its methods are in the how-to",
    "Flow": "what @flow returns: a value to give to `run`, `ctx.call` and lists of steps",
    "PolicyOptions": "a TypedDict: the table of options",
    "Registry": "made by users, filled by `register`; its methods are for workers",
    "Results": "a base class without members",
    "RetryWith": "a value that a fallback function returns; its keywords are the user's",
    "Runs": "a list; among the records",
    "Settings": "settings.md",
    "StepOptions": "a TypedDict: the table of options",
    "StepState": "a dict",
    "Steps": "its attributes are the names of steps",
    "WorkerSettings": "settings.md",
}


def test_every_exported_class_is_listed_or_says_why_not() -> None:
    exported = {name: getattr(package, name) for package in PACKAGES for name in package.__all__}
    classes = {name for name, one in exported.items() if inspect.isclass(one)}
    listed = {documented.name for documented in CLASSES} | {cls.__name__ for cls in PAIRS} | set(RECORDS) | {"StepOf"}
    errors = {error.__name__ for error in ERRORS}
    assert classes - listed - errors - set(WITHOUT_A_LIST) == set()
    assert set(WITHOUT_A_LIST) <= classes
    own = members(rival_workers.EmbeddedRival) - members(Rival)
    assert all(f"`{one}`" in page("steps.md").text for one in own)
    assert members(Rival) <= members(rival_workers.EmbeddedRival)


# -- functions ----------------------------------------------------------------------------------------------------

FUNCTIONS = sorted(
    name for name in rival_workers.__all__ if inspect.isfunction(getattr(rival_workers, name)) and name != "default"
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_in_the_reference_with_its_parameters(name: str) -> None:
    call = shown(name, getattr(rival_workers, name))
    text = page("steps.md").text
    if f"`{call}" in text:
        return
    section = page("steps.md").section(f"`{name}`")
    assert section, f"steps.md has neither `{call}` nor a section `{name}` with a table of its arguments"
    arguments = {
        span for row in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE) for span in re.findall(r"`(\w+)`", row)
    }
    expected = {one.name for one in inspect.signature(getattr(rival_workers, name)).parameters.values()}
    assert arguments == expected - {"options"}


# -- records ------------------------------------------------------------------------------------------------------

RECORDS = sorted(
    name
    for name in rival_client.__all__
    if inspect.isclass(one := getattr(rival_client, name)) and dataclasses.is_dataclass(one)
)


def record_rows() -> dict[str, str]:
    section = page("client.md").section("Records") or ""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    return dict(rows)


def test_the_reference_has_exactly_the_records_that_exist() -> None:
    assert sorted(record_rows()) == sorted({*RECORDS, "Runs"} - {"Settings"})


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "Settings"])
def test_every_field_of_a_record_is_in_the_reference_and_nothing_else(name: str) -> None:
    """What is in parentheses explains a field."""
    cls = getattr(rival_client, name)
    listed = set(
        re.findall(r"`([^`]+)`", re.sub(r"(?<!`)\([^()]*(?:\([^()]*\)[^()]*)*\)(?!`)", "", record_rows()[name]))
    )
    inherited = {one for base in cls.__mro__[1:] if base.__name__ in RECORDS for one in members(base)}
    own = {one for one in members(cls) - inherited if one.partition("(")[0] not in INTERNAL.get(name, set())}
    assert listed == own


# -- errors -------------------------------------------------------------------------------------------------------

#: Raised, but caught by their public base; or raised by parts that users do not call.
INNER_ERRORS = {
    "MissingTables": "a ConfigurationError and a DatabaseRefused",
    "UnknownStep": "an AttributeError and a KeyError in a step",
    "AttemptFailed": "raised after the commit, so that Celery reports the attempt as failed",
    "NotExternal": "ctx.completion_token of a step that is not external",
}


def all_errors() -> list[type]:
    for package in (rival_client, rival_workers):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "versions" not in found.name and not found.name.endswith(("__main__", "_entry", ".env")):
                importlib.import_module(found.name)
    todo, found_errors = [RivalError], []
    while todo:
        todo += (error := todo.pop()).__subclasses__()
        found_errors.append(error)
    return [one for one in found_errors if one.__module__.startswith("rival_")]


ERRORS = sorted({one.__name__: one for one in all_errors()}.values(), key=lambda one: one.__name__)
EXPORTED = {name for package in PACKAGES for name in package.__all__}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_exported_and_in_the_reference_with_its_attributes(error: type) -> None:
    if error.__name__.startswith("_") or error.__name__ in INNER_ERRORS:
        return
    assert error.__name__ in EXPORTED, f"{error.__name__} is not exported from a package root, nor in INNER_ERRORS"
    texts = (page("errors.md").text, page("testing.md").text)
    row = next((found[0] for text in texts if (found := re.search(rf"^\| `{error.__name__}` \|.*$", text, re.M))), None)
    assert row, f"{error.__name__} is not in the tables of errors.md"
    inherited = {name for base in error.__mro__[1:] if base in ERRORS for name in attributes(base)}
    missing = {name for name in attributes(error) - inherited if f"`.{name}`" not in row}
    assert not missing, f"the row of {error.__name__} does not name {sorted(missing)}"


def test_the_reference_names_no_error_that_does_not_exist() -> None:
    errors, _, of_dashboard = page("errors.md").text.partition("\n## In answers of the dashboard\n")
    listed = set(re.findall(r"^\| `(\w+)` \|", errors, re.MULTILINE))
    assert listed <= {one.__name__ for one in ERRORS} | {"connection"}
    codes = set(re.findall(r"^\| `(\w+)` \|", of_dashboard, re.MULTILINE))
    assert codes == dashboard_codes() - {one.__name__ for one in ERRORS}


def dashboard_codes() -> set[str]:
    """The second argument of every `Refused(404, "NotFound", …)`."""
    trees = (ast.parse(file.read_text()) for file in (ROOT / "rival_workers" / "dashboard").rglob("*.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 2)
    codes = (call.args[1] for call in calls if ast.unparse(call.func) == "Refused")
    # The other form is the name of an error's class.
    return {code.value for code in codes if isinstance(code, ast.Constant)}


#: Names of errors that a verb, a start or a search may raise, and codes of the dashboard's own.
CODES = dashboard_codes() | {one.__name__ for one in ERRORS} & (EXPORTED - set(testing.__all__))


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_type_of_each_answer_of_the_dashboard_leads_to_its_row(code: str) -> None:
    address = as_document(Refused(400, code, "No."))["type"].removeprefix(ON_GITHUB)
    path, _, anchor = address.partition("#")
    target = Page(ROOT / path)
    assert anchor in target.anchors()
    row = next(line for line in target.text.splitlines() if f'<a id="{anchor}">' in line)
    assert row.startswith(f"| `{code}` | ")
