"""Column types and the database's clock, the same on Postgres and SQLite."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, DateTime, Dialect, Float, Integer, Select, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import JSON, TypeDecorator, TypeEngine


class Timestamp(TypeDecorator[dt.datetime]):
    """timestamptz on Postgres; seconds since the epoch on SQLite, which has no such type."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Float() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> Any:
        return value.timestamp() if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> dt.datetime | None:
        if value is None or dialect.name != "sqlite":
            return value  # type: ignore[no-any-return]
        try:
            return dt.datetime.fromtimestamp(value, dt.UTC)
        except (ValueError, OverflowError, OSError):
            # Further away than a datetime can say: the row is readable all the same.
            return dt.datetime.max.replace(tzinfo=dt.UTC)


class now(FunctionElement[dt.datetime]):
    """The database's clock. No other clock decides what is due."""

    type = Timestamp()
    inherit_cache = True
    name = "now"


class clock(FunctionElement[dt.datetime]):
    """The time of this statement, where `now` is that of its transaction."""

    type = Timestamp()
    inherit_cache = True
    name = "clock"


class after(FunctionElement[dt.datetime]):
    """The database's clock plus some seconds."""

    type = Timestamp()
    inherit_cache = True
    name = "after"


class later(FunctionElement[dt.datetime]):
    """A time plus some seconds."""

    type = Timestamp()
    inherit_cache = True
    name = "later"


class one_of(FunctionElement[bool]):
    """`one_of(column, select)`: IN, with the values read first. So Postgres goes through the column's index whatever it
    guesses of the tables; for a plain IN it may read all of them, as long as it has no statistics.
    """

    type = Boolean()
    inherit_cache = True
    name = "one_of"

    def __init__(self, column: ColumnElement[Any], values: Select[Any]) -> None:
        super().__init__(column, values.scalar_subquery())


@compiles(now, "postgresql")
def _now_pg(element: now, compiler: Any, **kw: Any) -> str:
    return "now()"


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **kw: Any) -> str:
    return "rival_now()"


@compiles(clock, "postgresql")
def _clock_pg(element: clock, compiler: Any, **kw: Any) -> str:
    return "clock_timestamp()"


@compiles(clock, "sqlite")
def _clock_sqlite(element: clock, compiler: Any, **kw: Any) -> str:
    return "rival_now()"


@compiles(after, "postgresql")
def _after_pg(element: after, compiler: Any, **kw: Any) -> str:
    return f"(now() + make_interval(secs => CAST({compiler.process(element.clauses, **kw)} AS double precision)))"


@compiles(after, "sqlite")
def _after_sqlite(element: after, compiler: Any, **kw: Any) -> str:
    return f"(rival_now() + {compiler.process(element.clauses, **kw)})"


@compiles(later, "postgresql")
def _later_pg(element: later, compiler: Any, **kw: Any) -> str:
    at, seconds = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"({at} + make_interval(secs => CAST({seconds} AS double precision)))"


@compiles(later, "sqlite")
def _later_sqlite(element: later, compiler: Any, **kw: Any) -> str:
    return "({} + {})".format(*(compiler.process(clause, **kw) for clause in element.clauses))


@compiles(one_of, "postgresql")
def _one_of_pg(element: one_of, compiler: Any, **kw: Any) -> str:
    return "{} = ANY (ARRAY{})".format(*(compiler.process(clause, **kw) for clause in element.clauses))


@compiles(one_of, "sqlite")
def _one_of_sqlite(element: one_of, compiler: Any, **kw: Any) -> str:
    return "{} IN {}".format(*(compiler.process(clause, **kw) for clause in element.clauses))


class JsonText(JSON):
    """JSON in a TEXT column. SQLite gives a column declared JSON numeric affinity: 1.0 comes back as 1, and 10**30 as
    1e30.
    """


@compiles(JsonText, "sqlite")
def _json_text_sqlite(element: JsonText, compiler: Any, **kw: Any) -> str:
    return "TEXT"


class scalar_text(FunctionElement[str]):
    """The string that a JSON column holds."""

    type = Text()
    inherit_cache = True
    name = "scalar_text"


@compiles(scalar_text, "postgresql")
def _scalar_text_pg(element: scalar_text, compiler: Any, **kw: Any) -> str:
    return f"({compiler.process(element.clauses, **kw)} #>> '{{}}')"


@compiles(scalar_text, "sqlite")
def _scalar_text_sqlite(element: scalar_text, compiler: Any, **kw: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **kw)}, '$')"


_TEXT = JsonText(none_as_null=True)
#: A value of users: the text that it was stored as, so that key order and number types stay. See docs/guarantees.md.
Payload = (
    JSON(none_as_null=True).with_variant(postgresql.JSON(none_as_null=True), "postgresql").with_variant(_TEXT, "sqlite")
)
#: What a payload must hold. Users never read it back, and Postgres compares it as jsonb.
Filter = (
    JSON(none_as_null=True)
    .with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
    .with_variant(_TEXT, "sqlite")
)
#: Names and ids compare byte by byte: quicker than a language's order, and a path sorts after its prefixes.
Name = Text().with_variant(Text(collation="C"), "postgresql")
BigId = BigInteger().with_variant(Integer(), "sqlite")
#: Ids of gates.
Slots = postgresql.ARRAY(BigInteger).with_variant(_TEXT, "sqlite")
