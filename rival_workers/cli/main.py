"""`rival`: the table of commands. Turns errors into one line on stderr and an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from rival_client import __version__
from rival_client.errors import InvalidArgument, InvalidSetting, RivalError, did_you_mean
from rival_workers.cli.display.output import print_error
from rival_workers.dev.errors import StackError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

#: Command -> its module. A module is imported when its command is used, so `rival ls` does not import what only
#: `rival dev` needs.
COMMANDS = {
    "run": "runs",
    "wait": "runs",
    "ls": "runs",
    "show": "show",
    "top": "top",
    "why": "why",
    "tree": "tree",
    "workflows": "runs",
    "cancel": "operations",
    "retry": "operations",
    "rewind": "operations",
    "pause": "operations",
    "resume": "operations",
    "skip": "settle",
    "set-result": "settle",
    "dlq": "dead_letters",
    "breaker": "breakers",
    "limit": "limits",
    "key": "keys",
    "policy": "policy",
    "logs": "logs",
    "plan": "plan",
    "emit": "events",
    "events": "events",
    "schedule": "schedules",
    "recover": "recovery",
    "complete": "external_steps",
    "fail": "external_steps",
    "worker": "worker",
    "dev": "dev",
    "dashboard": "dashboard",
    "flower": "flower",
    "doctor": "doctor.command",
    "db": "database",
    "demo": "demo.command",
    "completion": "completion",
}


#: Command -> its line in `rival --help`, which does not import the commands. A test compares both.
SUMMARIES = {
    "run": "Start a run of workflow NAME with the input JSON (or @FILE, or - for standard input).",
    "wait": "Wait until RUN has ended.",
    "ls": "List runs, newest first.",
    "show": "Show RUN: its steps, attempts, result and the tracebacks of failed attempts.",
    "top": "Watch the fleet: workers, queues, open runs, the slowest steps, and what waits for limits and breakers.",
    "why": "Explain what RUN waits for, since when, until when, and what can end it.",
    "tree": "Show the tree of runs that RUN belongs to, each with the step that started it.",
    "workflows": "List the registered workflows.",
    "cancel": "Cancel RUN with its open steps and its child runs, or all open runs that match a filter.",
    "retry": "Continue a failed or cancelled RUN where it stopped, or all failed runs that match a filter.",
    "rewind": "Run STEP of RUN and everything after it again.",
    "pause": "Start no further steps of RUN, or of all open runs that match a filter.",
    "resume": "Continue a paused RUN, or all paused runs that match a filter.",
    "skip": "Skip STEP of RUN: an open step, or the one at which RUN failed.",
    "set-result": "Complete STEP of RUN with the result JSON (or @FILE, or -): an open step, or the one at which RUN "
    "failed.",
    "dlq": 'Handle dead letters: steps that failed with on_failure="dead_letter" and wait for an operator.',
    "limit": "List and change limits of steps and runs, which the whole fleet shares.",
    "breaker": "List, open, close and reset circuit breakers, which the whole fleet shares.",
    "key": "List, show and drop idempotency keys of steps.",
    "policy": "Set rules for the whole fleet, and show where the options of a step come from.",
    "logs": "Print what the steps of RUN logged, oldest first.",
    "plan": "Draw the plan of workflow NAME, as registered by workers, or as defined in the files of --workflows.",
    "emit": "Send an event with the payload JSON (or @FILE, or - for standard input) to the runs that wait for TOPIC.",
    "events": "List events, newest first, and the topics that are nearly full.",
    "schedule": "Add, list, pause, fire and remove schedules, which start runs by the clock.",
    "recover": "Publish again the messages for everything that waits for a worker, and count what waits.",
    "complete": "Complete the external step of TOKEN with the result JSON (or @FILE, or - for standard input).",
    "fail": "Fail the external step of TOKEN.",
    "worker": "Join the fleet: run steps of the given workflows until Ctrl-C or SIGTERM.",
    "dev": "Run a Postgres, a Redis and workers for your own workflows until Ctrl-C.",
    "dashboard": "Show runs, workflows and the fleet in a browser, and act on them.",
    "flower": "Watch every attempt in Flower, beside `rival dev` or on RIVAL_BROKER_URL.",
    "doctor": "Check database, schema, broker, workers, clocks and settings.",
    "db": "Upgrade the schema of the database, or print its version.",
    "completion": "Print the completion script of SHELL: bash, zsh or fish.",
    "demo": "Watch durable runs: retries, a timeout, a cancel, and a worker that is killed in the middle of a step.",
}


class Cli(click.Group):
    """Prints an expected error without a traceback, with `--json` as JSON."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return _loaded(name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in COMMANDS])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Click would import every command to find out whether it is hidden."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=SUMMARIES.get(name)) for name in COMMANDS if name.startswith(incomplete)]

    def _summary(self, ctx: click.Context, name: str) -> str:
        known = SUMMARIES.get(name)
        return known or _loaded(name).get_short_help_str(1000)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **__: Any) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        sys.exit(self._run(given, prog_name or "rival", as_json="--json" in given))

    def _run(self, args: list[str], program: str, as_json: bool) -> int:
        try:
            code = super().main(args, prog_name=program, standalone_mode=False)
            return code if isinstance(code, int) else 0
        except (RivalError, StackError) as error:
            print_error(error, str(error), as_json)
            return MISUSED if isinstance(error, InvalidArgument | InvalidSetting) else FAILED
        except click.UsageError as error:
            print_error(error, _usage(error), as_json)
            return MISUSED
        except click.ClickException as error:
            print_error(error, error.format_message(), as_json)
            return FAILED
        except (KeyboardInterrupt, click.Abort):
            return INTERRUPTED


def _loaded(name: str) -> click.Command:
    module = importlib.import_module(f"rival_workers.cli.{COMMANDS[name]}")
    command: click.Command = getattr(module, name.replace("-", "_"))
    return command


def _usage(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx is not None else "rival"
    return f"{error.format_message()} (see `{command} --help`)"


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=Cli, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="rival")
def cli() -> None:
    """Durable workflows on Celery and Postgres.

    Commands use the servers of RIVAL_DATABASE_URL and RIVAL_BROKER_URL or, when these are not set, those of a `rival
    dev` that runs in the same folder.
    """


if __name__ == "__main__":
    cli()
