"""Takes the locks of a transaction in the order that `rival_client.db.locks` describes: topics first, then the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Update, func, select

from rival_client.db.database import Database
from rival_client.db.locks import lock_run, share_run
from rival_workers.engine.effects import WaitFor

#: Two arbitrary numbers that only the locks of topics use, and what separates a topic and a key.
TOPICS, KEYS, BETWEEN = 726_354, 726_355, "\x1f"
#: Of the groups between which a limit is fair (`limits.sql`). Taken before any row is locked, and only there.
FAIR_GROUPS = 726_358

T = TypeVar("T")


class TopicNeeded(Exception):
    """The lock of this topic is needed before any other lock: a delivery holds it when it comes to the run."""

    def __init__(self, wait: WaitFor) -> None:
        super().__init__(wait.topic)
        self.wait = wait


class RunNeeded(Exception):
    """The exclusive lock of the run is needed before any other of its locks."""


def in_lock_order(database: Database, run_id: str, once: Callable[[Connection, bool], T], *, alone: bool = False) -> T:
    """Run `once` in a transaction that has locked the run: exclusively if `alone`, which `once` gets as its argument.

    When it finds out that it needs more (RunNeeded, TopicNeeded), all of it is rolled back and done again with that
    lock. Each repetition adds a lock, so there is an end to them.
    """
    topics: list[WaitFor] = []
    while True:
        try:
            with database.transaction() as connection:
                lock_topics(connection, topics)
                (lock_run if alone else share_run)(connection, run_id)
                return once(connection, alone)
        except RunNeeded:
            alone = True
        except TopicNeeded as needed:
            topics.append(needed.wait)


def change_locked(connection: Connection, change: Update, what: str) -> None:
    """Change the row of `what`, which the transaction has locked: if the guard does not fit, nothing may be committed
    that says otherwise."""
    if connection.execute(change).rowcount != 1:
        raise RuntimeError(f"{what} has changed since this transaction read it")


def lock_topics(connection: Connection, waits_for: Iterable[WaitFor]) -> list[WaitFor]:
    """Lock the topics of these waits. Returns the waits in the order of their locks: of one topic, the whole before its
    keys, since a shared lock is not made exclusive without a deadlock."""
    in_order = sorted(waits_for, key=lambda one: (one.topic, one.key is not None, one.key or ""))
    for wait in in_order:
        lock_topic(connection, wait.topic, wait.key)
    return in_order


def need_topic(connection: Connection, wait: WaitFor) -> None:
    """Try-lock: the caller holds the lock of a run, so waiting here could deadlock."""
    if connection.dialect.name == "postgresql" and not all(_locks(connection, wait.topic, wait.key, "pg_try_advisory")):
        raise TopicNeeded(wait)


def lock_topic(connection: Connection, topic: str, key: str | None) -> None:
    """With a key: shares the topic, and excludes others from the key. Without one: excludes others from the topic."""
    if connection.dialect.name == "postgresql":  # elsewhere a transaction is alone anyway
        _locks(connection, topic, key, "pg_advisory")


def _locks(connection: Connection, topic: str, key: str | None, how: str) -> Row[Any]:
    exclusive, shared = getattr(func, f"{how}_xact_lock"), getattr(func, f"{how}_xact_lock_shared")
    number = func.hashtext(topic)
    if key is None:
        return connection.execute(select(exclusive(TOPICS, number))).one()
    of_key = exclusive(KEYS, func.hashtext(f"{topic}{BETWEEN}{key}"))
    return connection.execute(select(shared(TOPICS, number), of_key)).one()
