"""Input models whose forms are filled in a browser, each with a value: what pydantic writes as JSON Schema, and the
shapes at which forms of other dashboards broke.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel, SecretStr

from rival_workers import create_workflow
from rival_workers.definition.registry import Registry
from tests.browser.harder_forms import HARDER


class Text(BaseModel):
    name: str


class Whole(BaseModel):
    amount: int = Field(ge=1, le=10)


class Real(BaseModel):
    ratio: float = Field(gt=0, lt=1)


class LongNumber(BaseModel):
    """More digits than a number of a browser has."""

    id: int = Field(ge=1, le=2**63 - 1)
    amounts: list[int] = []
    free: dict[str, Any] = {}


class Truth(BaseModel):
    sure: bool


class TruthWithDefault(BaseModel):
    sure: bool = True


class Dates(BaseModel):
    day: dt.date
    moment: dt.datetime
    clock: dt.time
    length: dt.timedelta


class Ids(BaseModel):
    id: uuid.UUID
    site: AnyUrl


class Money(BaseModel):
    price: Decimal


class Colour(Enum):
    red = "red"
    green = "green"
    blue = "blue"


class Chosen(BaseModel):
    colour: Colour


class Level(IntEnum):
    low = 1
    high = 2


class ChosenNumber(BaseModel):
    level: Level


class ManyChoices(BaseModel):
    country: Literal["Austria", "Belgium", "Denmark", "Estonia", "Finland", "Germany"]


class OneConstant(BaseModel):
    kind: Literal["order"]
    size: int


class Optionally(BaseModel):
    """A field that may be none, with and without a value."""

    name: str | None = None
    amount: int | None = None


class RequiredNone(BaseModel):
    """None has to be given, and is not the same as absent."""

    name: str | None


class DefaultNotNone(BaseModel):
    name: str | None = "ann"


class NumberOrText(BaseModel):
    key: int | str


class WholeOrReal(BaseModel):
    amount: int | float


class Strings(BaseModel):
    names: list[str]


class Numbers(BaseModel):
    amounts: list[int] = Field(min_length=1)


class Tags(BaseModel):
    tags: set[Literal["new", "sale", "gift"]]


class Pair(BaseModel):
    point: tuple[float, float]


class Mixed(BaseModel):
    row: tuple[str, int, bool]


class Amounts(BaseModel):
    lines: dict[str, int]


class Headers(BaseModel):
    headers: dict[str, str] = Field(default_factory=dict)


class Anything(BaseModel):
    payload: Any


class FreeObject(BaseModel):
    extra: dict[str, Any]


class ListsInDict(BaseModel):
    groups: dict[str, list[int]]


class Address(BaseModel):
    street: str
    city: str = "Berlin"


class Person(BaseModel):
    name: str
    address: Address


class Nested(BaseModel):
    """A model in a model in a model."""

    person: Person


class OptionalModel(BaseModel):
    address: Address | None = None


class Team(BaseModel):
    people: list[Person]


class Parcel(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)
    gift: bool = False


class Order(BaseModel):
    lines: list[Parcel]


class ModelsByName(BaseModel):
    offices: dict[str, Address]


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Bank(BaseModel):
    kind: Literal["bank"] = "bank"
    iban: str


class Paid(BaseModel):
    pay: Annotated[Card | Bank, Field(discriminator="kind")]


class Cat(BaseModel):
    meows: int


class Dog(BaseModel):
    barks: int


class Plain(BaseModel):
    """A union without a discriminator."""

    pet: Cat | Dog


class ManyPayments(BaseModel):
    payments: list[Annotated[Card | Bank, Field(discriminator="kind")]]


class Tree(BaseModel):
    """A model that contains itself."""

    name: str
    children: list[Tree] = []


class Secret(BaseModel):
    user: str
    password: SecretStr


class Described(BaseModel):
    name: str = Field(title="Full name", description="As on the passport", examples=["Ann", "Bob"], max_length=40)


class WithDefaults(BaseModel):
    name: str = "ann"
    amount: int = 3
    tags: list[str] = ["a", "b"]
    address: Address = Address(street="A")


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    from_: str = Field(alias="from")


class OddNames(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    slash: int = Field(alias="a/b")
    tilde: int = Field(alias="c~d")
    space: int = Field(alias="e f")


class Empty(BaseModel):
    """Has no fields."""


class Names(RootModel[list[str]]):
    """A list as the whole input."""


class Mail(BaseModel):
    email: Annotated[str, Field(json_schema_extra={"format": "email"})] | None = None
    text: str = Field(max_length=5000)


class DefaultFactory(BaseModel):
    ids: list[int] = Field(default_factory=list)
    when: dt.date | None = Field(default=None, description="empty: today")


#: Model -> the JSON that its form is to produce.
CASES: dict[type[BaseModel], Any] = {
    Text: {"name": "Ann"},
    Whole: {"amount": 7},
    Real: {"ratio": 0.25},
    LongNumber: {"id": 9007199254740993, "amounts": [2**63 - 1], "free": {"a": -(2**60) - 1}},
    Truth: {"sure": False},
    TruthWithDefault: {"sure": False},
    Dates: {"day": "2026-11-20", "moment": "2026-11-20T10:00:00Z", "clock": "10:30:00", "length": "PT1H30M"},
    Ids: {"id": "0192f3a1-7c00-7000-8000-000000000001", "site": "https://example.com/"},
    Money: {"price": "19.90"},
    Chosen: {"colour": "green"},
    ChosenNumber: {"level": 2},
    ManyChoices: {"country": "Denmark"},
    OneConstant: {"kind": "order", "size": 3},
    Optionally: {"name": "Ann", "amount": None},
    RequiredNone: {"name": None},
    DefaultNotNone: {"name": None},
    NumberOrText: {"key": "seven"},
    WholeOrReal: {"amount": 1.5},
    Strings: {"names": ["a", "b"]},
    Numbers: {"amounts": [1, 2, 3]},
    Tags: {"tags": ["new", "gift"]},
    Pair: {"point": [1.5, -2]},
    Mixed: {"row": ["a", 1, True]},
    Amounts: {"lines": {"axe": 2, "rope": 1}},
    Headers: {"headers": {"accept": "text/plain"}},
    Anything: {"payload": {"a": [1, None, "x"]}},
    FreeObject: {"extra": {"a": 1}},
    ListsInDict: {"groups": {"even": [2, 4]}},
    Nested: {"person": {"name": "Ann", "address": {"street": "Main Street", "city": "Bonn"}}},
    OptionalModel: {"address": {"street": "Main Street", "city": "Berlin"}},
    Team: {"people": [{"name": "Ann", "address": {"street": "A", "city": "Berlin"}}]},
    Order: {"lines": [{"sku": "axe", "count": 2, "gift": True}, {"sku": "rope", "count": 1, "gift": False}]},
    ModelsByName: {"offices": {"main": {"street": "A", "city": "Berlin"}}},
    Paid: {"pay": {"kind": "bank", "iban": "DE00"}},
    Plain: {"pet": {"barks": 2}},
    ManyPayments: {"payments": [{"kind": "card", "number": "4"}, {"kind": "bank", "iban": "DE"}]},
    Tree: {"name": "root", "children": [{"name": "leaf", "children": []}]},
    Secret: {"user": "ann", "password": "s3cret"},
    Described: {"name": "Ann"},
    WithDefaults: {"name": "ann", "amount": 3, "tags": ["a", "b"], "address": {"street": "A", "city": "Berlin"}},
    Extra: {"name": "Ann", "shoe": 42},
    Strict: {"name": "Ann"},
    Aliased: {"from": "here"},
    OddNames: {"a/b": 1, "c~d": 2, "e f": 3},
    Empty: {},
    Names: ["a", "b"],
    Mail: {"email": "ann@example.com", "text": "one\ntwo"},
    DefaultFactory: {"ids": [5], "when": "2026-11-20"},
    **HARDER,
}  # fmt: skip


def name_of(model: type[BaseModel]) -> str:
    return f"form-{model.__name__}"


def register(registry: Registry) -> None:
    """A workflow for each model."""

    def take() -> None:
        """Does nothing."""

    for model in CASES:
        create_workflow(name_of(model)).input(model).step(take).register(registry)
