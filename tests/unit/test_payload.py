"""What users hand over becomes JSON text once, or a reason why not."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import pathlib
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    field_serializer,
)

from rival_client import InvalidPayload
from rival_client.model.payload import NULL, Json, dump, json_encoder, load, serialise
from tests.support.output import whole


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Plank:
    length: decimal.Decimal
    cut_at: dt.datetime


class Tree(BaseModel):
    kind: str
    id: uuid.UUID
    planted: dt.date


NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
AN_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("value", "read_back"),
    [
        (None, None),
        ({"a": [1, 2.5, True, None, "ä€😀"]}, {"a": [1, 2.5, True, None, "ä€😀"]}),
        (NOON, "2024-05-01T12:00:00+00:00"),
        (dt.date(2024, 5, 1), "2024-05-01"),
        (dt.time(12, 30), "12:30:00"),
        (dt.timedelta(minutes=1.5), 90.0),
        (AN_ID, str(AN_ID)),
        (decimal.Decimal("1.10"), "1.10"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        (Plank(decimal.Decimal("2.50"), NOON), {"length": "2.50", "cut_at": "2024-05-01T12:00:00+00:00"}),
        (
            [Tree(kind="oak", id=AN_ID, planted=dt.date(2024, 5, 1))],
            [{"kind": "oak", "id": str(AN_ID), "planted": "2024-05-01"}],
        ),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
    ],
)
def test_what_people_use_becomes_json(value: Any, read_back: Any) -> None:
    assert load(dump(value, what="it")) == read_back


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"a": float("inf")},
        [-float("inf")],
        {1, 2},
        object(),
        b"bytes",
        {(1, 2): 3},
        lambda: 1,
        1j,
        Exception("x"),
        Plank,
        int("9" * 4299) * 100,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_json_is_refused_and_named(value: Any) -> None:
    with pytest.raises(InvalidPayload, match=whole("the result of step 'a' is not JSON: …")):
        dump(value, what="the result of step 'a'")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({1: "a", "1": "b"}, "1"),
        ([{"a": {"true": 1, True: 2}}], "true"),
        ({None: 1, "null": 2}, "null"),
        ({1.5: 1, "1.5": 2}, "1.5"),
        ({-1: 1, "-1": 2}, "-1"),
        ({1e30: 1, "1e+30": 2}, "1e+30"),
        (Plank({7: 1, "7": 2}, NOON), "7"),  # type: ignore[arg-type]
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_keys_that_are_the_same_in_json_are_refused_with_the_reason(value: Any, key: str) -> None:
    """Readers of the text would see one of the two values."""
    with pytest.raises(InvalidPayload) as refused:
        dump(value, what="the result of step 'a'")
    assert str(refused.value) == (
        f"the result of step 'a' has an object with two keys that are both \"{key}\" in JSON, where numbers, bools "
        "and None become texts. Use texts as keys, each once."
    )


def test_converted_keys_of_different_objects_and_keys_in_texts_do_not_collide() -> None:
    value = [{1: "a"}, {"1": "b"}, {2: {2: 1}}, '{"3": 1, "3": 2}']
    assert load(dump(value, what="it")) == [{"1": "a"}, {"1": "b"}, {"2": {"2": 1}}, '{"3": 1, "3": 2}']


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidPayload, match=whole("it is not JSON: Circular reference detected")):
        dump(value, what="it")


def test_a_value_nested_too_deep_is_refused() -> None:
    value: Any = None
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidPayload, match=whole("it is not JSON: it holds itself, or has too many levels")):
        dump(value, what="it")
    while value:
        value = value[0]


@pytest.mark.parametrize("value", ["a\x00b", {"a\x00": 1}, [[{"k": ["\x00"]}]]])
def test_a_nul_character_is_refused_with_the_reason(value: Any) -> None:
    with pytest.raises(InvalidPayload, match=whole("it holds a NUL character (\\u0000), which Postgres cannot store")):
        dump(value, what="it")


def test_the_six_characters_of_an_escaped_nul_are_text_like_any_other() -> None:
    assert load(dump("\\u0000", what="it")) == "\\u0000"


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["ok", "x\ud83dx"]])
def test_a_lone_surrogate_is_refused_with_the_reason(value: Any) -> None:
    with pytest.raises(InvalidPayload, match=whole("it holds a lone surrogate, which is not valid Unicode")):
        dump(value, what="it")


@pytest.mark.parametrize(("letter", "width"), [("a", 1), ("ä", 2), ("€", 3), ("😀", 4)])
def test_the_limit_counts_bytes_and_is_exact(letter: str, width: int) -> None:
    fits = letter * 100
    assert load(dump(fits, what="it", limit=100 * width + 2)) == fits
    advice = "Store large things elsewhere and pass a reference, or raise RIVAL_MAX_PAYLOAD."
    too_much = f"it is {100 * width + 2} bytes, over the limit of {100 * width + 1}. {advice}"
    with pytest.raises(InvalidPayload, match=whole(too_much)):
        dump(fits, what="it", limit=100 * width + 1)


class Login(BaseModel):
    password: SecretStr
    others: dict[str, list[SecretBytes]] = {}
    anything: Any = None


class Revealed(Login):
    @field_serializer("password", when_used="json")
    def _reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (Login(password=SecretStr("a")), "field 'password' is a SecretStr"),
        ({"logins": [Login(password=SecretStr("a"))]}, "field 'password' is a SecretStr"),
        (Revealed(password=SecretStr("a"), others={"b": [SecretBytes(b"c")]}), "field 'others.b.0' is a SecretBytes"),
        (
            Revealed(password=SecretStr("a"), anything={SecretStr("a"): 1}),
            "field 'anything.**********' is a SecretStr",
        ),
        (Revealed(password=SecretStr("a"), anything=(1, Secret[int](5))), "field 'anything.1' is a Secret"),
    ],
)
def test_a_secret_of_which_only_asterisks_would_be_stored_is_refused(value: Any, field: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        dump(value, what="the input")
    assert str(caught.value) == (
        f"the input is not JSON: {field}, of which only asterisks would be stored. What is stored is not hidden: "
        "declare it as str (or bytes), give its model a field_serializer that returns the secret value, or pass a dict"
    )


def test_a_secret_that_is_stored_as_it_is_passes() -> None:
    assert load(dump(Revealed(password=SecretStr("a***")), what="it"))["password"] == "a***"
    assert load(dump(Login(password=SecretStr("")), what="it"))["password"] == ""
    assert load(dump(Login(password=SecretStr("*" * 10)), what="it"))["password"] == "*" * 10


class Line(BaseModel):
    line_no: int = Field(alias="lineNo")
    note: str = Field(default="", validation_alias=AliasChoices("remark", "note"), serialization_alias="shownNote")


class Cart(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="allow", serialize_by_alias=True)

    cart_id: int = Field(alias="cartId")
    lines: list[Line] = []
    by_name: dict[str, Line] = Field(default={}, alias="byName")
    pair: RootModel[tuple[Line, int]] | None = None


def test_a_model_as_an_input_has_the_names_by_which_its_schema_reads_it() -> None:
    line = Line.model_validate({"lineNo": 1, "remark": "soft"})
    cart = Cart(cart_id=4, lines=[line], by_name={"line_no": line}, pair=RootModel((line, 2)), more="x")  # type: ignore[call-arg]
    stored = load(dump([cart], what="it", is_input=True))
    aliased = {"lineNo": 1, "remark": "soft"}
    expected = {"cartId": 4, "lines": [aliased], "byName": {"line_no": aliased}, "pair": [aliased, 2], "more": "x"}
    assert stored == [expected]
    assert Cart.model_validate(stored[0]) == cart


def test_nothing_is_null_and_null_is_text() -> None:
    assert dump(None, what="it") is NULL
    assert load(None) is None
    assert serialise(NULL) == "null"


def test_checked_text_goes_through_the_database_layer_as_it_is_and_anything_else_is_dumped() -> None:
    assert serialise(Json('{"a":1}')) == '{"a":1}'
    assert serialise('{"a":1}') == json.dumps('{"a":1}')
    assert serialise({"a": 1}) == '{"a":1}'


def test_what_is_not_a_payload_is_stored_even_if_postgres_could_not_read_it_as_it_is() -> None:
    assert load(serialise({"a\x00": ["b\ud800", "\\u0000", "😀", 1.0]})) == {"a\\0": ["b?", "\\u0000", "😀", 1.0]}


storable_text = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | storable_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable_text, inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_comes_back_as_it_was(value: Any) -> None:
    text = dump(value, what="it")
    assert load(text) == value
    text.encode()


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_the_encoder_that_is_made_once_writes_what_json_writes(ensure_ascii: bool) -> None:
    encode = json_encoder(ensure_ascii=ensure_ascii)
    values = ["é\u2028", 1, -1.5, 10**30, True, None, [], {}, {"a": [1, {"b": "\x07é"}]}, {1: "a", False: 2, None: 3}]
    for value in values:
        assert encode(value) == json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"))


def test_a_value_that_holds_itself_is_refused_and_spoils_no_later_one() -> None:
    itself: list[Any] = []
    itself.append(itself)
    for _ in range(2):
        with pytest.raises(InvalidPayload, match=whole("x is not JSON: Circular reference detected")):
            dump(itself, what="x")
    assert dump([[], []], what="x") == "[[],[]]"
