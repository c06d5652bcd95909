"""`rival plan`: a workflow's plan as a tree, a flowchart or JSON, and the differences between two versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from rival_client.errors import UnknownWorkflow
from rival_client.model.workflow_info import WorkflowInfo
from rival_workers.cli.completion import complete_workflows
from rival_workers.cli.connection import open_rival, resolved
from rival_workers.cli.display.formats import printable
from rival_workers.cli.display.output import console, json_option, print_json
from rival_workers.cli.load_check import loaded_workflows
from rival_workers.cli.options.fleet_options import workflows_option
from rival_workers.drawing import differences as differing
from rival_workers.drawing.plan_charts import mermaid, tree
from rival_workers.drawing.plan_outline import Entry, outline
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies, load_policies
from rival_workers.settings import WorkerSettings


@dataclass(frozen=True)
class PlanSource:
    """A plan and its origin."""

    name: str
    policies: Policies
    description: str | None = None
    in_files: bool = False

    @property
    def plan(self) -> Plan:
        return self.policies.plan

    @property
    def label(self) -> str:
        return f"{self.plan.version} (files)" if self.in_files else self.plan.version


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_workflows)
@click.argument("versions", nargs=-1, metavar="[OLD [NEW]]")
@click.option("--version", "version", metavar="V", help="This version (or its beginning) instead of the newest.")
@click.option("--diff", is_flag=True, help="What changed from version OLD to NEW. Default: the last change.")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print a Mermaid flowchart, which GitHub renders.")
@workflows_option
@json_option
def plan(
    name: str,
    versions: tuple[str, ...],
    version: str | None,
    diff: bool,
    as_mermaid: bool,
    paths: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw the plan of workflow NAME, as registered by workers, or as defined in the files of --workflows.

    With --diff and --workflows: what the files would change.
    """
    if len(versions) > (0 if not diff else 1 if paths else 2):
        raise click.UsageError(f"unexpected argument {versions[-1]!r}: versions are for --diff")
    if diff:
        _print_difference(*_pair(name, versions, paths), as_json)
    else:
        _draw(_one(name, version, paths), as_mermaid, as_json)


def _one(name: str, version: str | None, paths: Sequence[str]) -> PlanSource:
    if paths:
        return _from_files(name, paths)
    stored = _stored(name)
    return stored[0] if version is None else _chosen(stored, version)


def _pair(name: str, versions: Sequence[str], paths: Sequence[str]) -> tuple[PlanSource, PlanSource]:
    stored = _stored(name)
    if not paths and len(stored) == 1 and not versions:
        raise click.UsageError(f"workflow {name!r} has only one version: {stored[0].label}")
    default = stored[0] if paths else stored[min(1, len(stored) - 1)]
    old = _chosen(stored, versions[0]) if versions else default
    if paths:
        return old, _from_files(name, paths)
    return old, _chosen(stored, versions[1]) if len(versions) > 1 else stored[0]


def _stored(name: str) -> list[PlanSource]:
    with open_rival() as rival:
        return [_registered(info) for info in rival.versions(name)]


def _registered(info: WorkflowInfo) -> PlanSource:
    return PlanSource(info.name, load_policies(info.name, info.plan, info.policies), info.description)


def _from_files(name: str, paths: Sequence[str]) -> PlanSource:
    loaded = loaded_workflows(paths, resolved(WorkerSettings).environment())
    if name not in loaded:
        raise UnknownWorkflow(name, list(loaded))
    one = loaded[name]
    return PlanSource(name, load_policies(name, one.plan, one.options), in_files=True)


def _chosen(stored: Sequence[PlanSource], version: str) -> PlanSource:
    found = [one for one in stored if one.plan.version.startswith(version)]
    if len(found) != 1:
        known = ", ".join(one.label for one in stored)
        problem = "unknown version" if not found else "several versions begin with it"
        raise click.UsageError(f"{version!r}: {problem}; the versions, newest first: {known}")
    return found[0]


# -- output -----------------------------------------------------------------------------------------------


def _draw(one: PlanSource, as_mermaid: bool, as_json: bool) -> None:
    if as_json:
        facts = {"name": one.name, "version": one.plan.version, "description": one.description}
        print_json(facts | {"plan": one.plan.model_dump(mode="json"), "options": one.policies.shown()})
    elif as_mermaid:
        click.echo(mermaid(one.name, one.plan, one.policies.shown()), nl=False)
    else:
        out = console()
        out.print(Text(printable(one.name), style="bold"), Text(f"(version {one.label})", style="dim"))
        for lead, entry in tree(outline(one.plan, one.policies.shown())):
            out.print(_line(lead, entry))


def _line(lead: str, entry: Entry) -> Text:
    text = Text.assemble((lead, "dim"), printable(entry.name))
    return text.append(f"  {printable(entry.remark)}", "cyan") if entry.remark else text


def _print_difference(old: PlanSource, new: PlanSource, as_json: bool) -> None:
    found = differing.differences(old.plan, new.plan, old.policies.shown(), new.policies.shown())
    if as_json:
        facts: dict[str, Any] = {"name": new.name, "old": old.plan.version, "new": new.plan.version}
        print_json(facts | {"same": not found} | dataclasses.asdict(found))
        return
    click.echo(f"{printable(new.name)}: {old.label} → {new.label}")
    for line in differing.lines(found) or ["no difference"]:
        click.echo(printable(line))
