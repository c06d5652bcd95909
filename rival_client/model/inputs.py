"""Checks inputs against a workflow's registered schema, and lists all problems."""

from __future__ import annotations

import datetime as dt
import ipaddress
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any

import jsonschema_rs
from pydantic import TypeAdapter, ValidationError

from rival_client.errors import InputProblem, InvalidInput, InvalidPayload
from rival_client.model.payload import Json, dump, load
from rival_client.model.workflow_info import WorkflowInfo

_MAX_PROBLEM = 400
#: The rules of JSON Schema are stricter than pydantic: they refuse a time without a zone and a UUID without hyphens.
_KINDS: Mapping[str, Any] = {
    "date": dt.date,
    "date-time": dt.datetime,
    "time": dt.time,
    "duration": dt.timedelta,
    "uuid": uuid.UUID,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
}
#: Formats for which the validator has another rule than pydantic. Only the worker checks them.
_NOT_CHECKED = (
    *("email", "idn-email", "hostname", "idn-hostname", "uri", "uri-reference", "iri", "iri-reference", "uri-template"),
    *("json-pointer", "relative-json-pointer", "regex"),
)


class InputSchema:
    """The registered schema of a workflow's inputs; None: it has none, and any input fits."""

    def __init__(self, workflow: str, schema: dict[str, Any] | None) -> None:
        self.workflow, self.schema = workflow, schema

    @cached_property
    def _validator(self) -> Any:
        return self._made()

    @cached_property
    def _discreet_validator(self) -> Any:
        return self._made(mask="the value")

    def _made(self, **options: Any) -> Any:
        return jsonschema_rs.validator_for(self.schema or {}, formats=_text_formats(), validate_formats=True, **options)

    def problems(self, value: Any, *, quote: bool = True) -> list[InputProblem]:
        """`value`: as JSON. `quote`: problems may quote it."""
        if self.schema is None:
            return []
        validator = self._validator if quote else self._discreet_validator
        return [_problem(one) for error in validator.iter_errors(value) for one in _meant(error)]


class InputSchemas:
    """Those that were used last, of each workflow one: to compile a schema takes longer than to use it."""

    def __init__(self) -> None:
        self._known: dict[str, InputSchema] = {}

    def of(self, workflow: WorkflowInfo) -> InputSchema:
        known = self._known.get(workflow.name)
        if known is None or known.schema != workflow.input_schema:
            known = self._known[workflow.name] = InputSchema(workflow.name, workflow.input_schema)
        return known


class InputValidator:
    """One workflow at one version, as a producer sees it."""

    def __init__(self, workflow: WorkflowInfo, limit: int) -> None:
        self.workflow = workflow
        self._schema, self._limit = InputSchema(workflow.name, workflow.input_schema), limit

    def validate(self, value: Any, *, quote: bool = True, not_done: str = "no run was started") -> Json:
        """The input as JSON text; InvalidInput with every problem otherwise, and with what was not done.
        `quote`: problems may quote the input.
        """
        text = dump(value, what=f"the input of workflow {self.workflow.name!r}", limit=self._limit, is_input=True)
        if self._schema.schema is not None:
            problems = self._schema.problems(load(text), quote=quote)
            if problems:
                raise InvalidInput(self.workflow.name, problems, not_done=not_done)
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


def _meant(error: Any) -> Iterator[Any]:
    """For a value that fits no type of a union: the problems of the one type that it resembles, if it is only one."""
    possible = [inner for inner in getattr(error.kind, "context", None) or () if not _is_another(error, inner)]
    if len(possible) != 1:
        yield error
        return
    for one in possible[0]:
        yield from _meant(one)


def _is_another(error: Any, inner: Sequence[Any]) -> bool:
    """The value is of another JSON type, or a constant in it names another model."""
    own = error.instance_path
    return any(
        (one.kind.name == "type" and one.instance_path == own)
        or (one.kind.name == "const" and one.instance_path[:-1] == own)
        for one in inner
    )


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


# -- formats of texts, checked as a worker reads them -----------------------------------------------------


@cache
def _text_formats() -> dict[str, Callable[[str], bool]]:
    checked = {name: partial(_is_valid, TypeAdapter(kind)) for name, kind in _KINDS.items()}
    return checked | dict.fromkeys(_NOT_CHECKED, _any_text)


def _is_valid(kind: TypeAdapter[Any], text: str) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


def _any_text(text: str) -> bool:
    return True
