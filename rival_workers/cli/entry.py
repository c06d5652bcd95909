"""The console script `rival`. Imports nothing of the extra `workers` itself, so that it can print what to install."""

from __future__ import annotations

import sys

#: The modules of the extra `workers`; a test compares them with pyproject.toml.
EXTRA = frozenset({"alembic", "celery", "click", "httpcore", "httpx", "rich", "typing_extensions"})


def install_command(*extras: str) -> str:
    return f"pip install 'rival-workflows[{','.join(extras)}]'"


def main() -> None:
    """The console script. Exit code 1 and one line on stderr when the extra is not installed."""
    try:
        from rival_workers.cli.main import cli

        cli()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        why = f"this command needs the extra `workers` ({error.name} is not installed)"
        sys.exit(f"rival: {why}: {install_command('workers')}")
