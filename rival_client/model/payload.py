"""Converts values of users to JSON text, with a limit on the size. No other module serialises payloads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from json.encoder import c_make_encoder, encode_basestring, encode_basestring_ascii  # type: ignore[attr-defined]
from types import CoroutineType
from typing import Any

from pydantic import AliasChoices, BaseModel, RootModel
from pydantic.fields import FieldInfo

from rival_client.errors import InvalidPayload
from rival_client.model.json_checks import refuse_colliding_keys, refuse_deep, refuse_unstorable
from rival_client.model.masked_values import refuse_masked

DEFAULT_LIMIT = 1024 * 1024
#: What cannot be changed in place.
_SCALARS = frozenset({str, int, float, bool, type(None)})


class Json(str):
    """JSON text that has been checked already; the database layer passes it through as it is."""

    __slots__ = ()


NULL = Json("null")


#: Of what is JSON already. Made once: `json.dumps` with options makes an encoder for each call.
_encode_plain = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _of_model(model: BaseModel) -> Any:
    stored = model.model_dump(mode="json")
    refuse_masked(stored, model.model_dump)
    return stored


def _of_input_model(model: BaseModel) -> Any:
    stored = model.model_dump(mode="json", by_alias=False)
    refuse_masked(stored, partial(model.model_dump, by_alias=False))
    return _by_validation_alias(model, stored)


def _by_validation_alias(live: Any, stored: Any) -> Any:
    """`stored`, the JSON value of `live`, under the names that the schema of a model has for its fields. A model with a
    serializer of its own may have another form: fields that are not in it do not change."""
    if isinstance(live, RootModel):
        return _by_validation_alias(live.root, stored)
    if isinstance(live, BaseModel) and isinstance(stored, dict):
        names = {name: _alias_of(field) or name for name, field in type(live).model_fields.items()}
        return {
            names.get(key, key): _by_validation_alias(live.__dict__.get(key), value) for key, value in stored.items()
        }
    if isinstance(live, Mapping) and isinstance(stored, dict) and len(live) == len(stored):
        return {
            key: _by_validation_alias(its_live, value)
            for its_live, (key, value) in zip(live.values(), stored.items(), strict=True)
        }
    if isinstance(live, list | tuple) and isinstance(stored, list) and len(live) == len(stored):
        return [_by_validation_alias(its_live, value) for its_live, value in zip(live, stored, strict=True)]
    return stored


def _alias_of(field: FieldInfo) -> str | None:
    """The first of several, as in the schema."""
    alias = field.validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    return first if isinstance(first, str) else None


def _encode_input(value: Any) -> Any:
    return _of_input_model(value) if isinstance(value, BaseModel) else _encode(value)


def _encode(value: Any) -> Any:
    if isinstance(value, CoroutineType):
        raise TypeError(f"it holds the coroutine {value.__name__}(…): is an await missing?")
    if reason := getattr(type(value), "_why_not_json", None):
        raise TypeError(reason)
    if isinstance(value, BaseModel):
        return _of_model(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, uuid.UUID | decimal.Decimal | pathlib.PurePath):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{type(value).__qualname__} is not JSON")


def json_encoder(default: Callable[[Any], Any] | None = None, *, ensure_ascii: bool = False) -> Callable[[Any], str]:
    """`json.JSONEncoder` makes the encoder that is written in C for each call. This one is made once; it does not see
    that a value holds itself until it is too deep, and then the other one says so."""
    separators = (",", ":")
    one = json.JSONEncoder(default=default, allow_nan=False, ensure_ascii=ensure_ascii, separators=separators)
    careful, of_text = one.encode, encode_basestring_ascii if ensure_ascii else encode_basestring
    if c_make_encoder is None:
        return careful
    quick = c_make_encoder(None, one.default, of_text, None, ":", ",", False, False, False)

    def encode(value: Any) -> str:
        try:
            return "".join(quick(value, 0))
        except RecursionError:
            return careful(value)

    return encode


_encode_value, _encode_input_value = json_encoder(_encode), json_encoder(_encode_input)


def _problem(error: Exception) -> str:
    """Python's own text for these numbers differs between its versions, and does not say what to do."""
    text = str(error)
    return "NaN and infinite numbers are not; give None or a text" if text.startswith("Out of range float") else text


def dump(value: Any, *, what: str, limit: int = DEFAULT_LIMIT, is_input: bool = False) -> Json:
    """The JSON text of `value`; InvalidPayload, naming `what`, when there is none or it is too long. `is_input`: models
    are written with the names that the schema of an input has for their fields."""
    if value is None:
        return NULL
    try:
        text = (_encode_input_value if is_input else _encode_value)(value)
    except RecursionError as error:
        raise InvalidPayload(f"{what} is not JSON: it holds itself, or has too many levels") from error
    except (TypeError, ValueError) as error:
        raise InvalidPayload(f"{what} is not JSON: {_problem(error)}") from error
    except Exception as error:
        # Models and dataclasses run code of their own to become JSON.
        raise InvalidPayload(f"{what} is not JSON: {type(error).__name__}: {error}") from error
    refuse_deep(text, what)
    refuse_colliding_keys(text, what)
    refuse_unstorable(text, what)
    if len(text) > limit // 4 and len(text.encode()) > limit:
        raise InvalidPayload(
            f"{what} is {len(text.encode()):,} bytes, over the limit of {limit:,}. "
            "Store large things elsewhere and pass a reference, or raise RIVAL_MAX_PAYLOAD."
        )
    return Json(text)


def load(text: str | bytes | None) -> Any:
    return None if text is None else json.loads(text)


def copied(value: Any) -> Any:
    """The value as the store would return it again: what user code does to one copy changes no other."""
    if type(value) is dict and all(type(key) is str and type(one) in _SCALARS for key, one in value.items()):
        return value.copy()
    return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value


def serialise(value: Any) -> str:
    """The database layer's JSON serialiser. What is not a checked payload (an error, an entry of the history) is stored
    in any case: one row that Postgres cannot read as jsonb would fail every search through the table.
    """
    if isinstance(value, Json):
        return value
    text = _encode_plain(value)
    return text if _is_storable(text) else _encode_plain(_storable(value))


def _is_storable(text: str) -> bool:
    try:
        return "\\u0000" not in text and (text.isascii() or bool(text.encode()))
    except UnicodeEncodeError:
        return False


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\\0").encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_storable(key): _storable(one) for key, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, list | tuple) else value
