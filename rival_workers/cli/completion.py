"""Shell completion: the scripts that users load, and names from the database.

Without a database, or after `TIME_LIMIT` seconds, there are no suggestions and no message.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Bash(BashComplete):
    """In bash `:`, `=` and `@` end a word, and run ids contain them. So the script splits the line at spaces, and
    removes from each suggestion what bash regards as earlier words."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" response type value
    local word="${line##*[[:space:]]}"
    local earlier="${word%%"${word##*[$COMP_WORDBREAKS]}"}"
    local before="${line%%"$word"}" words
    IFS=$' \\t\\n' read -ra words <<< "$before"
    response=$(env COMP_WORDS="$line" COMP_CWORD="${#words[@]}" %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$earlier"}") ;;
        esac
    done <<< "$response"
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}
#: Seconds after which the process ends without suggestions.
TIME_LIMIT = 3.0
LIMIT = 50
#: A shell inserts a suggestion as it is, and run ids are untrusted: only characters that no shell interprets. Letters
#: of any language are among them.
_HARMLESS = re.compile(r"\w[\w.,:/@%+=~-]*")


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish."""
    root = click.get_current_context().find_root().command
    click.echo(SHELLS[shell](root, {}, "rival", "_RIVAL_COMPLETE").source())


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Run ids: the newest, or those that start with the incomplete word."""
    from rival_client.sql.reads.run_search import run_ids

    return _read(lambda connection: run_ids(connection, incomplete, LIMIT), incomplete)


def complete_workflows(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of registered workflows."""
    from rival_client.sql.workflows import workflow_names

    return _read(workflow_names, incomplete)


def complete_steps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Paths of the steps of the run that is given before."""
    from rival_client.sql.reads.run_search import step_paths

    run_id = ctx.params.get("run_id") or ctx.params.get("run")
    return _read(lambda connection: step_paths(connection, run_id, incomplete, LIMIT), incomplete) if run_id else []


def complete_limits(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of limits."""
    from rival_client.sql.limit_records import limit_names

    return _read(limit_names, incomplete)


def complete_breakers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of circuit breakers that have been used."""
    from rival_client.sql.breakers import breaker_names

    return _read(breaker_names, incomplete)


def complete_schedules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of schedules."""
    from rival_client.sql.schedules import schedule_names

    return _read(schedule_names, incomplete)


def _read(read: Callable[[Connection], Iterable[str]], incomplete: str) -> list[str]:
    from rival_workers.cli.connection import open_database

    # Ends the process: a name server, a connection or a locked table can each block it.
    limit = threading.Timer(TIME_LIMIT, os._exit, (0,))
    limit.daemon = True
    limit.start()
    try:
        with open_database() as database, database.autocommit() as connection:
            found = list(read(connection))
    except Exception:
        # No database, no tables or no privileges: a shell cannot show a message here.
        return []
    finally:
        limit.cancel()
    return [name for name in found if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]
