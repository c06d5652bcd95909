"""Loads workflow files in a separate process: a broken file is one clear error instead of a fleet that keeps dying, and
the process that supervises the fleet never runs user code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rival_client.errors import RivalError
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.files import register_paths
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError

TIMEOUT = 60.0
#: An example of each simple type of JSON Schema, and of each format of a text.
_SIMPLE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None}
_FORMATS = {
    "date": "2030-12-31",
    "date-time": "2030-12-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ann@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


@dataclass(frozen=True)
class LoadedWorkflow:
    """A plan and the options of its steps, as they are stored, and an example of an input."""

    plan: dict[str, Any]
    options: dict[str, Any]
    example: Any


def loaded_workflows(paths: Sequence[str], env: dict[str, str]) -> dict[str, LoadedWorkflow]:
    """The workflows in these files and directories by their names. Raises DefinitionError with all problems of all
    files."""
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
    return {name: LoadedWorkflow(**one) for name, one in answer["workflows"].items()}


def _load(paths: Sequence[str]) -> dict[str, Any]:
    try:
        register_paths(paths)
    except DefinitionError as error:
        return {"problems": error.problems, "workflows": {}}
    found = {one.name: asdict(_loaded(one)) for one in default_registry}
    nothing = [] if found else [f"{', '.join(paths)}: no workflow found (give a .py file with a list `steps`)"]
    return {"problems": nothing, "workflows": dict(sorted(found.items()))}


def _loaded(one: WorkflowDefinition) -> LoadedWorkflow:
    return LoadedWorkflow(one.plan.model_dump(mode="json"), one.document.dump(), example_input(one.input_schema or {}))


def example_input(schema: dict[str, Any], whole: dict[str, Any] | None = None) -> Any:
    """An input for this part of a JSON Schema: what it names as an example, or the least that its types ask for."""
    whole = schema if whole is None else whole
    if "$ref" in schema:
        return example_input(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for given in ("examples", "enum"):
        if schema.get(given):
            return schema[given][0]
    for given in ("anyOf", "oneOf", "allOf"):
        if schema.get(given):
            # None, where it is possible: a type may contain itself.
            nothing = {"type": "null"} in schema[given]
            return None if nothing else example_input(schema[given][0], whole)
    return _least(schema, whole)


def _least(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    kind = str(schema.get("type"))
    if kind == "object":
        parts = schema.get("properties", {})
        return {name: example_input(parts.get(name, {}), whole) for name in schema.get("required", ())}
    if kind == "array":
        return [example_input(schema.get("items", {}), whole) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), _SIMPLE[kind])
    return schema.get("minimum", _SIMPLE.get(kind, {}))


if __name__ == "__main__":
    # The last line of the output: user code may print while it is imported.
    print("\n" + json.dumps(_load(sys.argv[1:])), flush=True)
