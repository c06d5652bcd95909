"""`rival`: the command line. Here the commands are put together, and errors become one clear line and an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from rival_client import __version__
from rival_client.errors import InvalidSetting, RivalError, did_you_mean
from rival_workers.cli.output import print_error
from rival_workers.cli.summaries import SUMMARIES
from rival_workers.dev.errors import StackError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

#: Command -> its module, which is imported when it is used: `rival ls` does not wait for what `rival dev` needs.
COMMANDS = {
    "run": "runs",
    "wait": "runs",
    "ls": "runs",
    "show": "runs",
    "tree": "tree",
    "workflows": "runs",
    "cancel": "operations",
    "retry": "operations",
    "rewind": "operations",
    "pause": "operations",
    "resume": "operations",
    "skip": "operations",
    "set-result": "operations",
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
    "flower": "flower",
    "doctor": "doctor.command",
    "db": "database",
    "demo": "demo.command",
    "completion": "completion",
}


class Cli(click.Group):
    """Click's group, but an expected error never shows a traceback, and `--json` holds for errors too."""

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
        """Click would load every command to find out whether it is hidden."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=SUMMARIES.get(name)) for name in COMMANDS if name.startswith(incomplete)]

    def _summary(self, ctx: click.Context, name: str) -> str:
        known = SUMMARIES.get(name)
        return known or _loaded(name).get_short_help_str(1000)

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        sys.exit(self._run(given, as_json="--json" in given))

    def _run(self, args: list[str], as_json: bool) -> int:
        try:
            code = super().main(args, prog_name="rival", standalone_mode=False)
            return code if isinstance(code, int) else 0
        except (RivalError, StackError) as error:
            print_error(error, str(error), as_json)
            return MISUSED if isinstance(error, InvalidSetting) else FAILED
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

    Commands find their servers by RIVAL_DATABASE_URL and RIVAL_BROKER_URL; when these are not set, by a `rival dev`
    that runs in the same folder.
    """


if __name__ == "__main__":
    cli()
