"""Checks inputs against a workflow's registered schema, and names all that does not fit."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import jsonschema_rs

from rival_client.errors import InputProblem, InvalidArgument, InvalidInput, InvalidPayload
from rival_client.model import arguments
from rival_client.model.payload import Json, dump, load
from rival_client.model.records import WorkflowInfo

T = TypeVar("T")
_MAX_PROBLEM = 400


class InputValidator:
    """One workflow at one version, as a producer sees it."""

    def __init__(self, workflow: WorkflowInfo, limit: int) -> None:
        self.workflow = workflow
        self._limit = limit

    @cached_property
    def _validator(self) -> Any:
        schema = self.workflow.input_schema
        return None if schema is None else jsonschema_rs.validator_for(schema)

    @cached_property
    def _discreet_validator(self) -> Any:
        schema = self.workflow.input_schema
        return None if schema is None else jsonschema_rs.validator_for(schema, mask="the value")

    def validate(self, value: Any, *, quote: bool = True) -> Json:
        """The input as JSON text; InvalidInput with every problem otherwise. `quote`: problems may quote the input."""
        text = dump(value, what=f"the input of workflow {self.workflow.name!r}", limit=self._limit)
        validator = self._validator if quote else self._discreet_validator
        if validator is not None:
            problems = [_problem(error) for error in validator.iter_errors(load(text))]
            if problems:
                raise InvalidInput(self.workflow.name, problems)
        return text

    def validate_all(self, values: Iterable[Any]) -> list[Json]:
        admitted: list[Json] = []
        problems: list[str] = []
        for index, value in enumerate(values):
            try:
                admitted.append(self.validate(value))
            except InvalidInput as error:
                problems += [f"inputs[{index}]: {problem}" for problem in error.problems]
            except InvalidPayload as error:
                raise InvalidPayload(f"inputs[{index}]: {error}") from error
        if problems:
            raise InvalidInput(self.workflow.name, problems)
        return admitted


def _problem(error: Any) -> InputProblem:
    where = ".".join(str(part) for part in error.instance_path)
    message = _shortened(str(error.message))
    return InputProblem(_pointer(error), message, _shortened(f"{where}: {error.message}") if where else message)


def _pointer(error: Any) -> str:
    """A property that is missing has a place of its own."""
    missing = getattr(error.kind, "property", None) if "Required" in type(error.kind).__name__ else None
    parts = [*error.instance_path, *([] if missing is None else [missing])]
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _shortened(problem: str) -> str:
    """It quotes the value, of any length."""
    half = _MAX_PROBLEM // 2
    return problem if len(problem) <= _MAX_PROBLEM else f"{problem[:half]} … {problem[-half:]}"


def new_run_id() -> str:
    """Unique, and rising with time so that neighbours in time are neighbours in the index."""
    return f"{int(time.time() * 1000):012x}{secrets.token_hex(10)}"


def given_or_new_id(given: str | None, argument: str = "run_id") -> str:
    return new_run_id() if given is None else arguments.new_id(argument, given)


def named_run(workflow: str | None, run_id: str | None) -> tuple[str | None, str]:
    """Of `wait(run_id)` and `wait(workflow, run_id)`: the workflow if one was given, and the run."""
    named, run = (None, workflow) if run_id is None else (workflow, run_id)
    if run is None:
        raise InvalidArgument("run_id", "give the id of the run, such as wait(started.run_id)")
    if hasattr(run, "run_id"):
        raise InvalidArgument(
            "run_id", f"{type(run).__name__} is not a run id: give its run_id, or call its own wait()"
        )
    return arguments.optional(arguments.name, "workflow", named), arguments.run_id(run)


def run_ids_for(count: int, given: Sequence[str] | None) -> list[str]:
    """One distinct id per input: those given, or new ones."""
    ids = [new_run_id() for _ in range(count)] if given is None else arguments.ids("run_ids", given)
    if len(ids) != count or len(set(ids)) != len(ids):
        raise InvalidArgument(
            "run_ids", f"run_many needs one distinct run id per input: {len(ids)} ids, {count} inputs."
        )
    return ids


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
