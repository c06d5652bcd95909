"""Reads the result of a composite that ends from the rows of its steps and items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, and_, cast, func, select

from rival_client.db.run_tables import steps
from rival_client.model.kinds import ITEM
from rival_client.model.payload import NULL, Json, serialise
from rival_workers.engine import effects as fx
from rival_workers.engine.effects import Effect
from rival_workers.store.sql.scopes import begins


@dataclass
class Outcome:
    """Passed from effect to effect: the result or error of the step that ended last, and the step that failed."""

    result: Json = NULL
    error: dict[str, Any] | None = None
    step: str | None = ""
    items: tuple[Json, ...] = ()


def failed_with(error: dict[str, Any], path: str | None) -> Outcome:
    blamed = dict(error)
    step = blamed.pop("step", path)
    return Outcome(error=blamed, step=step)


@dataclass(frozen=True)
class CompositeResults:
    connection: Connection
    run_id: str
    max_payload: int

    def of(self, close: fx.Close, carried: Json) -> Json:
        """`carried`: the result of the step that ended last."""
        match close.result:
            case fx.Carried():
                return carried
            case fx.Nothing():
                return NULL
            case fx.ResultOf(path):
                return self._at([path]).get(path, NULL)
            case fx.ResultsByName(of):
                found = self._at([path for _, path in of])
                pairs = (f"{serialise(name)}:{found.get(path, NULL)}" for name, path in of)
                return Json("{" + ",".join(pairs) + "}")
            case fx.ResultsOfItems():
                return self._of_items(close.path)

    def too_large(self, end: Effect) -> dict[str, Any] | None:
        """The error of a list of results that exceeds the size limit; such a list is not read."""
        if not isinstance(end, fx.Close) or not isinstance(end.result, fx.ResultsOfItems):
            return None
        size = self.connection.scalar(
            select(func.coalesce(func.sum(func.length(cast(steps.c.result, Text)) + 1), 0)).where(
                self._is_item_of(end.path)
            )
        )
        if size is None or size <= self.max_payload:
            return None
        return {
            "type": "InvalidPayload",
            "message": f"the results of the items of {end.path!r} have {size:,} bytes in total, over the limit of "
            f"{self.max_payload:,}. Use for_each(…, collect=False) and read the items' own results, or raise "
            "RIVAL_MAX_PAYLOAD.",
        }

    def _at(self, paths: list[str]) -> dict[str, Json]:
        found = self.connection.execute(
            select(steps.c.path, steps.c.result).where(steps.c.run_id == self.run_id, steps.c.path.in_(paths))
        )
        return {row.path: Json(serialise(row.result)) for row in found}

    def _of_items(self, path: str) -> Json:
        found = self.connection.execute(
            select(steps.c.result)
            .where(self._is_item_of(path))
            # Shorter paths first: then the item numbers compare like their digits.
            .order_by(func.length(steps.c.path), steps.c.path)
        )
        return Json("[" + ",".join(serialise(row.result) for row in found) + "]")

    def _is_item_of(self, path: str) -> ColumnElement[bool]:
        begin = f"{path}["
        return and_(
            steps.c.run_id == self.run_id,
            steps.c.kind == ITEM,
            begins(begin),
            # Excludes items of a nested for_each, whose paths contain another slash.
            func.substr(steps.c.path, len(begin) + 1).not_like("%/%"),
        )
