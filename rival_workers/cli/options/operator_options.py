"""The operator's name as an option: who changes something, for the history."""

from __future__ import annotations

import getpass

import click

by_option = click.option("--by", default=None, help="The operator's name, for the history. [default: the user's name]")


def operator_name(given: str | None) -> str:
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "rival"
