"""Loads workflow files in a separate process: a broken file is one clear error instead of a fleet that keeps dying, and
the process that supervises the fleet never runs user code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rival_client.errors import RivalError
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.files import register_paths
from rival_workers.errors import DefinitionError

TIMEOUT = 60.0
#: A plan and the options of its steps, as they are stored.
StoredPlan = tuple[dict[str, Any], dict[str, Any]]


def workflow_names(paths: Sequence[str], env: dict[str, str]) -> list[str]:
    return list(workflow_plans(paths, env))


def workflow_plans(paths: Sequence[str], env: dict[str, str]) -> dict[str, StoredPlan]:
    """The workflows in these files and directories, with their plans and options. Raises DefinitionError with all
    problems of all files."""
    command = [sys.executable, "-m", __name__, *paths]
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=TIMEOUT, check=False, text=True)
        answer = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise RivalError(
            f"Loading {', '.join(paths)} took more than {TIMEOUT:g} s: check what the files do on import."
        ) from None
    except (IndexError, ValueError):
        raise RivalError(f"Loading {', '.join(paths)} ended the process (exit code {done.returncode}).") from None
    if answer["problems"]:
        raise DefinitionError(answer["problems"])
    plans: dict[str, StoredPlan] = answer["workflows"]
    return plans


def _load(paths: Sequence[str]) -> dict[str, Any]:
    try:
        register_paths(paths)
    except DefinitionError as error:
        return {"problems": error.problems, "workflows": {}}
    plans = {one.name: [one.plan.model_dump(mode="json"), one.document.dump()] for one in default_registry}
    nothing = [] if plans else [f"{', '.join(paths)}: no workflow found (give a .py file with a list `steps`)"]
    return {"problems": nothing, "workflows": dict(sorted(plans.items()))}


if __name__ == "__main__":
    # The last line of the output: user code may print while it is imported.
    print("\n" + json.dumps(_load(sys.argv[1:])), flush=True)
