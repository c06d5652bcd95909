"""What users hand to Rival becomes JSON text here, once, with a limit; nothing else serialises payloads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import re
import uuid
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from types import CoroutineType
from typing import Any

from pydantic import AliasChoices, BaseModel, RootModel
from pydantic.fields import FieldInfo

from rival_client.errors import InvalidPayload
from rival_client.model.masked_values import refuse_masked

DEFAULT_LIMIT = 1024 * 1024
#: Levels of lists and objects within one another. Python reads JSON recursively, and a worker reads it deep within its
#: own stack: what is deeper could be written and never be read.
MAX_DEPTH = 200
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
#: What cannot be changed in place.
_SCALARS = frozenset({str, int, float, bool, type(None)})
#: A key that Python may have written for a number, a bool or None. Within a text the quotes would be escaped.
_CONVERTED_KEY = re.compile(r'"(?:-?\d[\d.e+-]*|true|false|null)":')
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


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
    serializer of its own may have another form: what is not found in it is left as it is."""
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


_HOW: dict[str, Any] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
_encode_value = json.JSONEncoder(default=_encode, **_HOW).encode
_encode_input_value = json.JSONEncoder(default=_encode_input, **_HOW).encode


# "\\u0000" and lone surrogates are legal JSON text but no Postgres text; refusing them here gives both
# stores one behaviour and the user a reason instead of a database error.
def _refuse_unstorable(text: str, what: str) -> None:
    if "\\u0000" in text and "\x00" in "".join(_strings(json.loads(text))):
        raise InvalidPayload(f"{what} holds a NUL character (\\u0000), which Postgres cannot store")
    try:
        _ = text.isascii() or text.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(f"{what} holds a lone surrogate, which is not valid Unicode") from None


def _refuse_colliding_keys(text: str, what: str) -> None:
    """`{1: "a", "1": "b"}` becomes an object with the key "1" twice, of which a reader would keep one."""
    if not _CONVERTED_KEY.search(text):
        return

    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            duplicates.extend(name for name in names if names.count(name) > 1)

    json.loads(text, object_pairs_hook=collect)
    if duplicates:
        raise InvalidPayload(
            f"{what} has an object with two keys that are both {json.dumps(duplicates[0])} in JSON, where numbers, "
            "bools and None become texts. Use texts as keys, each once."
        )


def _refuse_deep(text: str, what: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub("", text).encode().translate(None, delete=_NOT_BRACKETS)
    depth = max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
    if depth > MAX_DEPTH:
        raise InvalidPayload(
            f"{what} has {depth:,} levels of lists and objects within one another; at most {MAX_DEPTH} are taken"
        )


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for pair in value.items() for part in pair for s in _strings(part)]
    if isinstance(value, list):
        return [s for item in value for s in _strings(item)]
    return []


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
        raise InvalidPayload(f"{what} is not JSON: {error}") from error
    except Exception as error:
        # Models and dataclasses run code of their own to become JSON.
        raise InvalidPayload(f"{what} is not JSON: {type(error).__name__}: {error}") from error
    _refuse_deep(text, what)
    _refuse_colliding_keys(text, what)
    _refuse_unstorable(text, what)
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
