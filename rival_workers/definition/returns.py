"""The declared type of a step's result: checked when the step ends, restored when another step reads it."""

from __future__ import annotations

import json
import sys
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from rival_client.errors import InvalidInput
from rival_client.model.inputs import InputSchema
from rival_client.model.masked_values import MaskedValue, refuse_masked
from rival_client.model.payload import dump, load
from rival_workers.errors import InvalidResult


class Returns:
    """A type of result. Stored fields have their own names, not aliases, as in any other payload."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self._adapter: TypeAdapter[Any] = TypeAdapter(type_)

    def __repr__(self) -> str:
        return f"Returns({self.shown})"

    @property
    def shown(self) -> str:
        return self.type.__name__ if isinstance(self.type, type) and not get_args(self.type) else str(self.type)

    def stored(self, value: Any, where: str) -> Any:
        """The JSON value of a result; InvalidResult, with every problem, when it is not of this type."""
        try:
            return self._dumped(self._adapter.validate_python(value, by_name=True, by_alias=True))
        except ValidationError as error:
            raise InvalidResult(f"the result of {where} is not of type {self.shown}: {problems_of(error)}") from None
        except PydanticSerializationError as error:
            raise InvalidResult(f"the result of {where} is not of type {self.shown}: {error}") from None
        except MaskedValue as error:
            raise InvalidResult(f"the result of {where} cannot be stored: {error}") from None

    def _dumped(self, fitting: Any) -> Any:
        how: dict[str, Any] = {"round_trip": True, "by_alias": False}
        # A model that was changed after it was made is not validated again: the warnings report that.
        stored = self._adapter.dump_python(fitting, mode="json", warnings="error", **how)
        refuse_masked(stored, lambda: self._adapter.dump_python(fitting, **how))
        return stored

    def restored(self, stored: Any, where: str) -> Any:
        what = f"the result of {where} as it was stored"
        return self._read(stored, what, "Has the type changed since? Then let it take the old form too.")

    def of_event(self, payload: Any, topic: str) -> Any:
        """The payload of a typed event."""
        what = f"the payload of event {topic!r}"
        return self._read(payload, what, "Send it as that model; or wait for the topic by its name, for any payload.")

    def _read(self, stored: Any, what: str, cure: str) -> Any:
        try:
            # As JSON: a strict model does not accept a string for a date in Python values.
            return self._adapter.validate_json(json.dumps(stored), by_name=True, by_alias=True)
        except ValidationError as error:
            raise InvalidResult(f"{what} is not of type {self.shown}: {problems_of(error)}. {cure}") from None


class NestedInput(Returns):
    """The input that a function makes for a nested workflow: it fits the workflow's schema, as that of a run does."""

    def __init__(self, workflow: str, schema: dict[str, Any]) -> None:
        super().__init__(Any)
        self._schema = InputSchema(workflow, schema)

    def stored(self, value: Any, where: str) -> Any:
        stored = load(dump(value, what=f"the result of {where}", limit=sys.maxsize, is_input=True))
        problems = self._schema.problems(stored, quote=False)
        if problems:
            raise InvalidInput(self._schema.workflow, problems, is_nested=True)
        return stored

    def restored(self, stored: Any, where: str) -> Any:
        return stored


def problems_of(error: ValidationError) -> str:
    """Every problem with its place, without values: they may be secrets."""
    return "; ".join(_problem(one) for one in error.errors(include_url=False, include_input=False))


def _problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else str(error["msg"])
