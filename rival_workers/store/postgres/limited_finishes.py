"""Fast paths for the end of a step that has a limit, or is followed by a step that has one: the slot goes to the next
ticket, to the step that follows, or back to its gate. The statements are in `limits.sql`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.limits.limit_shards import home_shard
from rival_client.model.limits.limits import Limit
from rival_client.model.starts.queues import Route
from rival_client.sql.gates import RATE_GRACE
from rival_client.sql.grants import Grant
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.paths import place_of
from rival_workers.store.claim_records import FinishResult
from rival_workers.store.postgres.claims import claimed_of, version_values
from rival_workers.store.postgres.statements import FastPath, array_of, load_statements
from rival_workers.store.postgres.steps import FinishCall, ended_values, next_values

LIMIT_STATEMENTS = load_statements("limits.sql")


_NO_GATE = dict.fromkeys(
    ("limit", "limit_suffix", "key_source", "key_path", "fair_source", "fair_path", "shard"),
)


def the_gate(limits: Sequence[Limit]) -> Limit | None:
    """The limit of a step, if it is the only one and the statements can find its gate."""
    if len(limits) != 1 or limits[0].needs_function or limits[0].made is not None:
        return None
    return limits[0] if _place(limits[0].key) and _place(limits[0].fair) else None


@lru_cache(maxsize=1000)
def _place(place: str | None) -> tuple[str | None, str] | None:
    """The source of a key and its fields as a Postgres array. None: the statements cannot read it."""
    source, *fields = (place or "").split(".")
    # Postgres counts a negative index from the end of a list.
    if source == "item" or any(field.startswith("-") for field in fields):
        return None
    return source or None, array_of(fields)


def the_limit(limits: Sequence[Limit]) -> Limit | None:
    """Like `the_gate`, for a concurrency limit: the statements can take a slot of it."""
    found = the_gate(limits)
    return None if found is None or found.is_rate else found


def gate_values(limit: Limit | None, run_id: str, path: str) -> dict[str, Value]:
    if limit is None:
        return {**_NO_GATE}
    key, fair = _place(limit.key), _place(limit.fair)
    assert key, "the_gate returns only limits with a readable key"
    assert fair
    return {
        "limit": limit.name,
        "limit_suffix": None if limit.name else limit.named("", place_of(path)).name,
        "key_source": key[0],
        "key_path": key[1],
        "fair_source": fair[0],
        "fair_path": fair[1],
        "shard": home_shard(run_id, path, limit.shards),
    }


# -- finish -----------------------------------------------------------------------------------------------


def is_limited(path: str, advance: Advance) -> bool:
    """True if the step that ends, or the step that follows, has limits."""
    if advance.config_of(path).limits:
        return True
    opening = advance.next_leaf or (advance.lane[2] if advance.lane else None)
    return opening is not None and bool(advance.limits_of(opening))


@dataclass(frozen=True)
class LimitedFinish:
    call: FinishCall
    #: The queues of the worker, as a Postgres array.
    queues: str = "{}"

    @cached_property
    def opening(self) -> OpenRow | None:
        lane = self.call.lane
        return self.call.advance.next_leaf or (lane[2] if lane else None)

    @cached_property
    def limit(self) -> Limit | None:
        return None if self.opening is None else the_limit(self._limits(self.opening.path))

    @property
    def claimer(self) -> str | None:
        """The executor that continues with the next step, if the statement can take its slot."""
        opening = self.opening
        if opening is None or not self.call.advance.goes_on(opening):
            return None
        return self.call.claim_for if self.limit or not self._limits(opening.path) else None

    @property
    def completes(self) -> bool:
        return self.call.succeeded and self.call.advance.completes_run

    @property
    def can_take(self) -> bool:
        """True if the statement can claim the step that gets the slot."""
        successor = self.call.successor
        return successor is not None and the_limit([successor.limit]) is not None

    def _limits(self, path: str) -> tuple[Limit, ...]:
        return self.call.advance.config_of(path).limits


def _finish(finish: LimitedFinish) -> dict[str, Value]:
    call, opening = finish.call, finish.opening
    ended = {**ended_values(call), "executor": finish.claimer}
    if opening is None:
        return ended
    # Any shard of the gate will do: only the statement knows the next item.
    path = opening.path if call.lane is None else call.claim.path
    its_gate = gate_values(finish.limit, call.claim.run_id, opening.path) | {"shard": _shard(finish, path)}
    return {**ended, **next_values(call.advance, opening, finish.claimer), **its_gate}


def _shard(finish: LimitedFinish, path: str) -> int | None:
    return None if finish.limit is None else home_shard(finish.call.claim.run_id, path, finish.limit.shards)


def _finish_lane(finish: LimitedFinish) -> dict[str, Value]:
    assert finish.call.lane is not None
    item, join, opening = finish.call.lane
    return {**_finish(finish), "next_path": opening.path.removeprefix(f"{join}["), "item": item, "join": join}


def _finish_and_take(finish: LimitedFinish) -> dict[str, Value]:
    successor = finish.call.successor
    assert successor is not None
    own: dict[str, Value] = {"timeout": successor.timeout, "policy": successor.policy, "without": successor.without}
    its_gate = gate_values(successor.limit, finish.call.claim.run_id, finish.call.claim.path)
    how = {**own, "executor": successor.executor, "queues": finish.queues}
    return {**ended_values(finish.call), **version_values(successor.of), **how, **its_gate}


@dataclass(frozen=True)
class Left:
    """The result of a finish, and the gates at which it freed a slot."""

    finished: FinishResult
    freed: tuple[int, ...] = ()


def _left(row: Row, **result: Any) -> Left:
    return Left(FinishResult(grants=grants_of(row[1]), **result), tuple(json.loads(row[0] or "[]")))


def _taken(finish: LimitedFinish, row: Row) -> Left:
    if row[2] is None:
        return _left(row, run_ended=True)
    claimed = claimed_of(row[2], finish.call.claim.path, row[3:])
    return _left(row, run_ended=True, taken=replace(claimed, waited=float(row[17] or 0)))


def grants_of(granted: str | None) -> tuple[Grant, ...]:
    """`granted`: tickets as JSON, as the statements return them."""
    return tuple(_grant(*one) for one in json.loads(granted or "[]"))


def _grant(*ticket: Any) -> Grant:
    said: tuple[Any, ...] = (*ticket[:7], float(ticket[9]), Route(ticket[7], ticket[8]))
    return Grant(*said)


def _goes_on(finish: LimitedFinish, row: Row) -> Left:
    opening, at_once, token = finish.opening, row[2] == "t", int(row[3] or 0)
    assert opening is not None
    if finish.call.lane is not None:
        if row[4] is None:
            return _left(row)
        opening = opening.at_item(finish.call.lane[1], int(row[4]))
    if at_once:
        return _left(row, claimed=opening, token=token)
    return _left(row, opened=(opening,), token=token)


FINISH_LIMITED: tuple[FastPath[LimitedFinish, Left], ...] = (
    FastPath(
        shortcuts="finish_step",
        statement=LIMIT_STATEMENTS["rival_finish_step_limited"],
        applies=lambda finish: finish.call.succeeded and finish.call.advance.next_leaf is not None,
        because="One step follows. Without a slot for it, a claim of its own follows, as on the portable path.",
        values=_finish,
        result=_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=LIMIT_STATEMENTS["rival_finish_step_limited_and_complete"],
        applies=lambda finish: finish.completes and not finish.can_take,
        because="The result of the last step is the result of the run, and a run without a parent resumes no other.",
        values=_finish,
        result=lambda finish, row: _left(row, run_ended=True),
    ),
    FastPath(
        shortcuts="finish_step",
        statement=LIMIT_STATEMENTS["rival_finish_step_limited_of_lane"],
        applies=lambda finish: finish.call.succeeded and finish.call.lane is not None,
        because="A lane of a for_each that is not the last one only counts down and opens the next item.",
        values=_finish_lane,
        result=_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=LIMIT_STATEMENTS["rival_finish_step_limited_and_take"],
        applies=lambda finish: finish.completes and finish.can_take,
        because="The same; the step that gets the slot is claimed by this executor, or its ticket is granted.",
        values=_finish_and_take,
        result=_taken,
    ),
)


# -- look again -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LookAgain:
    gates: Sequence[int]
    grace: float


LOOK_AGAIN: FastPath[LookAgain, tuple[Grant, ...]] = FastPath(
    shortcuts="look_again",
    statement=LIMIT_STATEMENTS["rival_look_again"],
    applies=lambda look: True,
    because="Each gate has one free slot, so at most one of its tickets is granted.",
    values=lambda look: {
        "gates": array_of(map(str, look.gates)),
        "grace": look.grace,
        "rate_grace": RATE_GRACE,
    },
    result=lambda look, row: grants_of(row[0]),
    decides=True,
)
