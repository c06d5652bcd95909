"""Arguments of the operators' verbs: the run, and the step after it or as an option."""

from __future__ import annotations

import click

from rival_workers.cli.completion import complete_runs, complete_steps

run_argument = click.argument("run_id", metavar="[RUN]", required=False, shell_complete=complete_runs)
step_argument = click.argument("step", metavar="[STEP]", required=False, shell_complete=complete_steps)
step_option = click.option("--step", "step_name", metavar="STEP", help="The step, together with a filter.")


def one_step(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        raise click.UsageError("give the step: STEP after RUN, or --step with a filter")
    return argument or option or ""
