"""`celery -A app rival …`: the commands of `rival`, with the settings of the app's `install(app)`.

Celery imports this module at each of its commands: it imports nothing but click.
"""

from __future__ import annotations

import click


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
    cli.main(args, prog_name=context.command_path)
