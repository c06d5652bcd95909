"""More input models whose forms are filled in a browser: shapes inside shapes, and types whose JSON is not what they
look like in Python."""

from __future__ import annotations

import datetime as dt
import ipaddress
import pathlib
import uuid
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Json, SecretStr, StrictInt, StringConstraints
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict


class Placed(BaseModel):
    kind: Literal["placed"] = "placed"
    lines: list[Line]


class Moved(BaseModel):
    kind: Literal["moved", "returned"]
    shelf: str
    why: str | None = None


class Line(BaseModel):
    sku: str
    price: Decimal = Field(ge=0, max_digits=8, decimal_places=2)


class EventsByDay(BaseModel):
    """A discriminated union in a list in a dictionary; a variant has two values of the discriminator."""

    days: dict[str, list[Annotated[Placed | Moved, Field(discriminator="kind")]]]


class Folder(BaseModel):
    """Contains itself by name and as an option."""

    title: str
    inside: dict[str, Folder] = {}
    parent: Folder | None = None


class Prices(BaseModel):
    """Decimals with limits, alone, in a list, and perhaps none."""

    unit: Decimal = Field(gt=0, max_digits=6, decimal_places=2)
    steps: list[Decimal] = []
    rebate: Decimal | None = Decimal("0.5")


class Literals(BaseModel):
    mixed: Literal[1, "two", None] = "two"
    numbers: Literal[10, 20, 30]
    several: list[Literal["a", "b"]] = []


class Constrained(BaseModel):
    code: Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}-\d+$", min_length=4, max_length=8)]
    even: int = Field(multiple_of=2, ge=-10, lt=100)
    few: list[Annotated[int, Field(ge=0)]] = Field(min_length=2, max_length=3)
    exact: StrictInt = 1


class Site(BaseModel):
    street: str
    rooms: list[int] = [1]


class SitesByName(BaseModel):
    sites: dict[str, Site]
    owners: dict[str, dict[str, str]] = {}


class DefaultModel(BaseModel):
    """An option whose default is a model."""

    site: Site | None = Site(street="A")
    other: Site = Site(street="B", rooms=[])


class Tuples(BaseModel):
    many: tuple[int, ...]
    pair: tuple[str, Site]


class Sets(BaseModel):
    numbers: set[int]
    words: frozenset[str] = frozenset()
    path: Sequence[str] = ()


class Binary(BaseModel):
    content: bytes
    more: list[bytes] = []


class Secrets(BaseModel):
    token: SecretStr | None = None
    tokens: list[SecretStr]
    by_name: dict[str, SecretStr] = {}


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    first_name: str
    home_site: Site | None = None
    last_seen_at: dt.date | None = None


class Size(IntEnum):
    small = 1
    large = 3


class Unit(Enum):
    piece = "piece"
    box = "box"
    dozen = 12


class Enums(BaseModel):
    size: Size = Size.large
    unit: Unit
    perhaps: Size | None = None
    sizes: list[Size] = []
    stock: dict[Unit, int] = {}


class Times(BaseModel):
    due: dt.date | None
    days: list[dt.date]
    opens: dt.time = dt.time(9, 30)
    naive: dt.datetime | None = None
    every: dt.timedelta = dt.timedelta(hours=1)


class Coded(BaseModel):
    """JSON in a text."""

    numbers: Json[list[int]]
    free: Json[Any] | None = None


class Examples(BaseModel):
    """With examples, a field that is no longer used, and one that is a constant."""

    city: str = Field(examples=["Bonn", "Linz"])
    site: Site = Field(examples=[{"street": "Ring", "rooms": [2]}])
    old: str | None = Field(default=None, deprecated=True)
    kind: Literal[2] = 2


class Unions(BaseModel):
    """Unions of unlike types, with none among them."""

    key: int | bool | None = None
    value: str | list[str]
    place: Site | str
    id: uuid.UUID | dt.date


class PrototypeNames(BaseModel):
    """Fields with names that objects of JavaScript have anyway."""

    constructor: str
    toString: int = 1
    length: int = 2
    hasOwnProperty: bool = False
    proto: dict[str, int] = Field(default={}, alias="__proto__")


class Addresses(BaseModel):
    host: ipaddress.IPv4Address
    net: ipaddress.IPv6Network | None = None
    file: pathlib.Path


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None


class Typed(TypedDict):
    sku: str
    count: int


class Point(NamedTuple):
    x: int
    y: int


class Records(BaseModel):
    """A generic model, a typed dictionary and a named tuple."""

    page: Page[Site]
    line: Typed
    point: Point


class LongNames(BaseModel):
    model_config = ConfigDict(extra="forbid")

    a_field_whose_name_is_longer_than_the_column_that_labels_have_in_the_form: str
    zürich: str = Field(alias="Zürich, “Höngg”")
    zorich: str = Field(alias="Zörich, “Hüngg”")


#: Model -> the JSON that its form is to produce.
HARDER: dict[type[BaseModel], Any] = {
    EventsByDay: {
        "days": {
            "mon": [
                {"kind": "placed", "lines": [{"sku": "axe", "price": "19.90"}]},
                {"kind": "returned", "shelf": "A1", "why": None},
            ]
        }
    },
    Folder: {
        "title": "a",
        "inside": {"b": {"title": "b", "inside": {}, "parent": {"title": "c", "inside": {}, "parent": None}}},
        "parent": None,
    },
    Prices: {"unit": "19.90", "steps": ["1.00", "0.5"], "rebate": None},
    Literals: {"mixed": 1, "numbers": 20, "several": ["b", "a"]},
    Constrained: {"code": "AB-12", "even": -4, "few": [0, 5], "exact": 1},
    SitesByName: {"sites": {"main": {"street": "A", "rooms": [1, 7]}}, "owners": {"main": {"first": "Ann"}}},
    DefaultModel: {"site": None, "other": {"street": "B", "rooms": []}},
    Tuples: {"many": [1, 2, 3], "pair": ["a", {"street": "A", "rooms": [1]}]},
    Sets: {"numbers": [3, 1], "words": ["b"], "path": ["x", "y"]},
    Binary: {"content": "abc", "more": ["d"]},
    Secrets: {"token": "t0p", "tokens": ["a", "b"], "by_name": {"ann": "c"}},
    Camel: {"firstName": "Ann", "homeSite": {"street": "A", "rooms": [1]}, "lastSeenAt": "2026-11-20"},
    Enums: {"size": 1, "unit": 12, "perhaps": 3, "sizes": [1, 3], "stock": {"box": 4}},
    Times: {
        "due": None,
        "days": ["2026-11-20"],
        "opens": "08:15:00",
        "naive": "2026-11-20T10:00:00Z",
        "every": "PT90S",
    },
    Coded: {"numbers": "[1, 2]", "free": '{"a": null}'},
    Examples: {"city": "Graz", "site": {"street": "Ring", "rooms": [2]}, "old": None, "kind": 2},
    Unions: {"key": 5, "value": ["a", "b"], "place": {"street": "A", "rooms": [1]}, "id": "2026-11-20"},
    PrototypeNames: {
        "constructor": "c",
        "toString": 3,
        "length": 4,
        "hasOwnProperty": True,
        "__proto__": {"valueOf": 5},
    },
    Addresses: {"host": "10.0.0.1", "net": "fd00::/8", "file": "/tmp/a b.txt"},
    Records: {
        "page": {"items": [{"street": "A", "rooms": [1]}], "next": None},
        "line": {"sku": "axe", "count": 2},
        "point": [1, -2],
    },
    LongNames: {
        "a_field_whose_name_is_longer_than_the_column_that_labels_have_in_the_form": "x",
        "Zürich, “Höngg”": "y",
        "Zörich, “Hüngg”": "z",
    },
}
