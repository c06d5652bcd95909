"""Idempotency keys on Postgres: many claims at one moment, interleavings that a lock forces, and random load."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, text

from rival_client.db.database_urls import libpq_url
from rival_client.db.idempotency_tables import keys
from rival_client.db.run_tables import steps
from rival_client.errors import RivalError
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.payload import Json
from rival_workers import step
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End
from rival_workers.store.call_records import KeyAnswer, KeyClaim
from rival_workers.store.claim_records import Claim
from tests.support.inline import Inline
from tests.support.limits import Slots
from tests.support.locks import until_blocked

NAME = KeyName("k", "w", "work")


class Keys(Slots):
    """Attempts that stay running until the test ends them, and ask for the same key."""

    def own(self, run_id: str) -> KeyAnswer | None:
        return self.store.own_key(self.running[run_id], KeyClaim(NAME, "work", "f", 60.0))

    def state(self, run_id: str) -> str | None:
        answer = self.own(run_id)
        return None if answer is None else answer.state

    def end(self, run_id: str, status: Any = "completed") -> Any:
        claim = self.running.pop(run_id)
        failed = status == "failed"
        error = {"type": "X", "message": "x", "attempt": 1} if failed else None
        end = End(status, Json("1"), error=error, hard=failed, outcome=status, keyed=True)
        advance = interpreter.advance(self._plan("w"), claim.path, end, "step").with_options(
            self._definition("w").policies.at
        )
        return self.store.finish_step(claim, end, advance, claim_for=None)

    @property
    def row(self) -> Any:
        with self.database.autocommit() as connection:
            return connection.execute(select(keys)).one()


@pytest.fixture
def owners(postgres_url: str) -> Iterator[Keys]:
    inline = Inline(postgres_url)
    inline.define("w", step(lambda: 1, name="work", idempotency_key="k:{input.k}"))
    yield Keys(inline)
    inline.close()


def at_once(owners: Keys, run_ids: list[str]) -> Counter[str | None]:
    together = threading.Barrier(len(run_ids))

    def ask(run_id: str) -> str | None:
        together.wait()
        return owners.state(run_id)

    with ThreadPoolExecutor(len(run_ids)) as pool:
        return Counter(pool.map(ask, run_ids))


def test_of_many_that_ask_at_one_moment_one_owns_the_key(owners: Keys) -> None:
    run_ids = [f"r{n}" for n in range(8)]
    owners.hold(*run_ids)
    assert at_once(owners, run_ids) == {"owned": 1, "queued": 7}
    assert len(owners.waiting) == 7


def test_of_many_that_ask_at_the_moment_of_its_expiry_one_owns_the_key(owners: Keys) -> None:
    run_ids = [f"r{n}" for n in range(8)]
    owners.hold("first", *run_ids)
    assert owners.state("first") == "owned"
    owners.end("first")
    with owners.database.transaction() as connection:
        connection.execute(text("UPDATE rival_idempotency_keys SET expires_at = now()"))
    assert at_once(owners, run_ids) == {"owned": 1, "queued": 7}


@pytest.mark.parametrize("newcomer_first", [True, False])
@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_newcomer_that_asks_while_the_owner_ends_is_not_overlooked(
    owners: Keys, newcomer_first: bool, status: str
) -> None:
    owners.hold("a", "b")
    assert owners.state("a") == "owned"
    acts = {"newcomer": lambda: owners.state("b"), "owner": lambda: owners.end("a", status)}
    order = ["newcomer", "owner"] if newcomer_first else ["owner", "newcomer"]
    with ThreadPoolExecutor(2) as pool, psycopg.connect(libpq_url(owners.database.url)) as gate:
        gate.execute("SELECT 1 FROM rival_idempotency_keys FOR UPDATE")
        results = {}
        for number, name in enumerate(order, 1):
            results[name] = pool.submit(acts[name])
            until_blocked(owners.database, number)
        gate.rollback()
        found = {name: one.result(20) for name, one in results.items()}
    if newcomer_first:
        assert found["newcomer"] == "queued"
        assert [one.run_id for one in found["owner"].grants] == ["b"]
    else:
        assert found["newcomer"] == ("reused" if status == "completed" else "owned")
    assert owners.waiting == []


RUNS, THREADS, SECONDS = 12, 6, 3.0


class Load:
    def __init__(self, owners: Keys, seed: int) -> None:
        self.owners, self.random = owners, random.Random(seed)
        self.rival, self.until = owners.inline.rival, time.monotonic() + SECONDS

    def run(self) -> None:
        while time.monotonic() < self.until:
            acts = [self.ask] * 6 + [self.end] * 4 + [self.lose, self.cancel, self.pause, self.drop]
            # Suppressed: it is not in a status in which this is possible.
            with suppress(RivalError, AssertionError, KeyError):
                self.random.choice(acts)(f"r{self.random.randrange(RUNS)}")

    def held(self, run_id: str) -> None:
        row = self.owners.step(run_id)
        assert row["status"] == "running"
        self.owners.running[run_id] = Claim(run_id, "work", row["execution_token"])

    def ask(self, run_id: str) -> None:
        self.owners.claim(run_id)
        self.held(run_id)
        if self.owners.state(run_id) == "reused":
            self.end(run_id)

    def end(self, run_id: str) -> None:
        self.held(run_id)
        self.owners.end(run_id, self.random.choice(["completed", "failed"]))
        self.rival.rewind(run_id, "work")

    def lose(self, run_id: str) -> None:
        self.held(run_id)
        self.owners.store.take_over_step(self.owners.running[run_id])

    def cancel(self, run_id: str) -> None:
        self.rival.cancel(run_id)
        self.rival.retry(run_id)

    def pause(self, run_id: str) -> None:
        self.rival.pause(run_id)
        self.rival.resume(run_id)

    def drop(self, run_id: str) -> None:
        self.rival.drop_idempotency_key("k", workflow="w", step="work")


def test_under_random_load_nothing_deadlocks_and_no_step_is_left_waiting(owners: Keys) -> None:
    def deadlocks() -> int:
        query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        with owners.database.autocommit() as connection:
            return int(connection.scalar(query) or 0)

    for n in range(RUNS):
        owners.start(f"r{n}", {"k": 1})
    before = deadlocks()
    with ThreadPoolExecutor(THREADS) as pool:
        for one in [pool.submit(Load(owners, seed).run) for seed in range(THREADS)]:
            one.result()
    assert deadlocks() == before
    for running in owners.store.running_on(owners.inline.process.executor.id):
        owners.store.hand_back_step(running.claim)
    _run_dry(owners)


def _run_dry(owners: Keys) -> None:
    """End whatever can start, until all have ended. What the sweep must find is found within two rounds."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with owners.database.autocommit() as connection:
            open_ = select(steps.c.run_id).where(steps.c.status.not_in(["completed", "failed"]))
            run_ids = list(connection.scalars(open_))
        if not run_ids:
            return
        for run_id in run_ids:
            owners.claim(run_id)
            if owners.status(run_id) == "running" and owners.state(run_id) in ("owned", "reused"):
                owners.end(run_id)
        owners.store.sweep_gates(100)
    raise AssertionError(f"these wait for ever: {run_ids}")
