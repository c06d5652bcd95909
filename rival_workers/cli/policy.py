"""`rival policy`: sets, lists and removes rules of the fleet, and explains where the options of a step come from."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import click

from rival_client.model.policies.matchers import matcher_problems
from rival_client.model.policies.plan_rules import without_effect
from rival_client.model.policies.policy_explanation import ExplainedField
from rival_client.model.policies.rulebook import FleetRule
from rival_client.model.workflow_info import unmatched
from rival_workers.cli.completion import complete_runs, complete_steps, complete_workflows
from rival_workers.cli.connection import open_rival
from rival_workers.cli.display.formats import one_line, time_text
from rival_workers.cli.display.output import console, json_option, print_json, table
from rival_workers.cli.options.operator_options import by_option, operator_name
from rival_workers.cli.options.time_options import moment

#: Conditions of `--match`, besides `label.NAME`.
_CONDITIONS = ("name", "regex", "kind", "path", "tag", "workflow")
#: Units of `--until 2h`.
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def until(context: click.Context, parameter: click.Parameter, value: str | None) -> dt.datetime | None:
    """A duration from now, a time of day, or an ISO time."""
    if value is None:
        return None
    if value[:-1].isdigit() and value[-1:] in _UNITS:
        return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=int(value[:-1]) * _UNITS[value[-1]])
    try:
        of_day = dt.datetime.combine(dt.datetime.now().astimezone(), dt.time.fromisoformat(value)).astimezone()
    except ValueError:
        return _iso_time(context, parameter, value)
    return of_day if of_day > dt.datetime.now().astimezone() else of_day + dt.timedelta(days=1)


def _iso_time(context: click.Context, parameter: click.Parameter, value: str) -> dt.datetime | None:
    try:
        return moment(context, parameter, value)
    except click.BadParameter:
        raise click.BadParameter(
            f"{value!r}: give a duration such as 2h, a time of day such as 18:00, or an ISO time such as "
            "2026-01-31T18:00+01:00."
        ) from None


def matchers(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """`name=charge`, `kind=step,branch`, `label.tenant=acme`."""
    found: dict[str, Any] = {}
    for one in value:
        key, _, text = one.partition("=")
        is_label = key.startswith("label.")
        if not (key in _CONDITIONS or is_label):
            raise click.BadParameter(f"{one!r}: give one of {', '.join(_CONDITIONS)} or label.NAME, as in name=charge.")
        if not text or key == "label.":
            raise click.BadParameter(f"{one!r}: give NAME=VALUE, as in name=charge or label.tenant=acme.")
        conditions, name = (found.setdefault("labels", {}), key.removeprefix("label.")) if is_label else (found, key)
        if name in conditions:
            raise click.BadParameter(f"{one!r}: {key} is given twice, and all conditions must fit.")
        conditions[name] = text.split(",") if key == "kind" else text
    if problems := matcher_problems(found):
        raise click.BadParameter("; ".join(problems))
    return found


def options(_: click.Context, __: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """`timeout=60 backoff=jitter retry_on='["TimeoutError"]'`."""
    pairs = [one.partition("=") for one in value]
    for key, equals, _text in pairs:
        if not equals:
            raise click.BadParameter(f"{key!r}: give OPTION=VALUE, such as timeout=60.")
    return {key: _value(text) for key, _, text in pairs}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.group()
def policy() -> None:
    """Set rules for the whole fleet, and show where the options of a step come from."""


@policy.command("set")
@click.argument("options", nargs=-1, required=True, callback=options, metavar="OPTION=VALUE...")
@click.option(
    "--match",
    multiple=True,
    callback=matchers,
    metavar="NAME=VALUE",
    help="name, regex, kind, path, tag, workflow or label.NAME; all must fit.",
)
@click.option("--workflow", metavar="NAME", shell_complete=complete_workflows, help="Only steps of this workflow.")
@click.option("--all", "every", is_flag=True, help="Every step of the fleet, instead of --match and --workflow.")
@click.option("--reason", help="The reason, shown with the rule.")
@click.option(
    "--until", "until", metavar="TIME", callback=until, help="When the rule expires: 2h, 18:00 or an ISO time."
)
@by_option
@json_option
def set_(
    options: dict[str, Any],
    match: dict[str, Any],
    workflow: str | None,
    every: bool,
    reason: str | None,
    until: dt.datetime | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Set a rule for the whole fleet: it overrides the options of all steps that it matches, from the next attempt."""
    if every == bool(match or workflow):
        raise click.UsageError(
            "Give --match NAME=VALUE or --workflow NAME for some steps, or --all for every step of the fleet."
        )
    with open_rival() as rival:
        rule = rival.set_policy(match, options, workflow=workflow, reason=reason, until=until, by=operator_name(by))
        registered = rival.workflows()
    warnings = [*unmatched(rule.rule.match, registered), *without_effect(rule.rule, registered)]
    if as_json:
        print_json({**_facts(rule), "warnings": warnings})
    else:
        for warning in warnings:
            click.echo(f"rival: {warning}", err=True)
        click.echo(f"rule {rule.id}: {rule.rule.match}: {_options(rule)}")


@policy.command("ls")
@json_option
def list_(as_json: bool) -> None:
    """List the rules of the fleet; the newest counts first."""
    with open_rival() as rival:
        found = rival.policies()
    if as_json:
        print_json([_facts(one) for one in found])
    elif not found:
        click.echo("no rules")
    else:
        console().print(table(("rule", "matches", "options", "reason", "by", "set", "until"), map(_row, found)))


@policy.command("rm")
@click.argument("rule", type=int)
@json_option
def remove(rule: int, as_json: bool) -> int:
    """Remove RULE, by its number."""
    with open_rival() as rival:
        removed = rival.remove_policy(rule)
    if as_json:
        print_json({"rule": rule, "removed": removed})
    else:
        click.echo(f"rule {rule} is removed" if removed else f"rival: unknown rule {rule}", err=not removed)
    return 0 if removed else 1


@policy.command("explain")
@click.argument("run", shell_complete=complete_runs)
@click.argument("step", shell_complete=complete_steps)
@click.option("--attempt", type=click.IntRange(min=1), help="This attempt instead of the last one.")
@click.option("--next", "preview", is_flag=True, help="The options that its next attempt would have.")
@click.option("--all", "every", is_flag=True, help="Also options that have their defaults.")
@json_option
def explain(run: str, step: str, attempt: int | None, preview: bool, every: bool, as_json: bool) -> None:
    """Show where the options of STEP of RUN come from."""
    if attempt is not None and preview:
        raise click.UsageError("Give either --attempt or --next.")
    with open_rival() as rival:
        found = rival.explain_policy(run, step, attempt=attempt, preview=preview)
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    which = "next attempt" if found.attempt is None else f"attempt {found.attempt}"
    shown = [one for one in found.fields if every or one.layer != "default"]
    click.echo(f"{found.run_id} {found.step}, {which}" + ("" if shown else ": all options have their defaults"))
    if shown:
        console().print(table(("option", "value", "from"), map(_explained, shown)))


def _explained(one: ExplainedField) -> tuple[str, str, str]:
    return one.name, one_line(json.dumps(one.value), 60), one.because


def _options(rule: FleetRule) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in rule.rule.options.items())


def _row(one: FleetRule) -> tuple[str, ...]:
    by, reason = one.author or "", one_line(one.reason or "", 40)
    expires = "" if one.expires_at is None else time_text(one.expires_at)
    return (str(one.id), str(one.rule.match), _options(one), reason, by, time_text(one.created_at), expires)


def _facts(one: FleetRule) -> dict[str, Any]:
    about = {"reason": one.reason, "author": one.author, "created_at": one.created_at, "expires_at": one.expires_at}
    return {"id": one.id, **one.rule.dump(), **about}
