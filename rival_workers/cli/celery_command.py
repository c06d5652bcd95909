"""`celery -A app rival …`: the commands of `rival`, with the settings of the app's `install(app)`.

Celery imports this module at each of its commands: it imports nothing but click.
"""

from __future__ import annotations

import click

_OF_APP = """Durable workflows on Celery and Postgres.

    Commands use the database, broker, queue and key prefix that the workers of the app have. Only `dev` and `demo`
    bring their own servers.
    """


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    short_help="Durable workflows: run, show and operate runs, watch the fleet.",
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def rival(context: click.Context, args: tuple[str, ...]) -> None:
    """All commands of `rival`."""
    from rival_workers.cli import connection
    from rival_workers.cli.main import cli
    from rival_workers.runtime.celery.install import installed_settings

    connection.of_app = installed_settings(context.obj.app)
    if connection.of_app is not None:
        cli.help = _OF_APP
    cli.main(args, prog_name=context.command_path)
