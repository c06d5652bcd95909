"""The process's one Rival, made when it is first needed: after a web server has forked."""

from functools import cache

from rival_client import Rival


@cache
def rival() -> Rival:
    return Rival()
