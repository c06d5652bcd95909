"""The singleton key of a run as data. Pure.

At most one run of a workflow with the same key runs: each run takes the only slot of a limit when it begins. The key is
stored with the policies of the run. The column `singleton` is the place of the key: while a run has it, other starts
with the key do not become runs. A run that was started with `on_conflict="cancel"` begins before those that are queued,
while it has the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.model.limits.limits import Limit

#: The name of the limit, after that of the workflow.
SUFFIX = "!singleton"
_FIELD = "singleton"
#: Of a run that begins before those that are queued.
_GOES_FIRST = "goes_first"


def singleton_limit(workflow: str, key: str) -> Limit:
    return Limit(max=1, name=workflow + SUFFIX, made=key)


def is_singleton(limit: Limit) -> bool:
    return limit.gate_name.endswith(SUFFIX)


def with_singleton(policies: Mapping[str, Any], key: str, *, goes_first: bool) -> dict[str, Any]:
    """The policies of a run with its key, as they are stored."""
    return {**policies, _FIELD: key} | ({_GOES_FIRST: True} if goes_first else {})


def goes_first(stored: Mapping[str, Any] | None) -> bool:
    return stored is not None and _GOES_FIRST in stored


def singleton_of(stored: Mapping[str, Any] | None) -> str | None:
    return None if stored is None else stored.get(_FIELD)


def rules_of(stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The policies of a run without its key; None: it has none."""
    if stored is None:
        return None
    rules = {name: value for name, value in stored.items() if name not in (_FIELD, _GOES_FIRST)}
    return rules if rules.get("rules") or rules.get("mode") == "replace" else None


def limits_of_run(workflow: str, stored: Mapping[str, Any] | None) -> tuple[Limit, ...]:
    """The limits that a run has of its own, and not from its workflow."""
    key = singleton_of(stored)
    return () if key is None else (singleton_limit(workflow, key),)
