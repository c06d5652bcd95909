"""Takes the locks of a transaction in the order that `rival_client.db.locks` describes: topics first, then the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Update, func, select

from rival_client.db.database import Database
from rival_client.db.locks import lock_run, share_run
from rival_workers.engine.effects import WaitFor

#: Two arbitrary numbers reserved for advisory locks of topics and keys, and the separator between a topic and a key.
TOPICS, KEYS, BETWEEN = 726_354, 726_355, "\x1f"
#: Advisory lock for the groups of fair limits (`limits.sql`). It is taken before any row is locked, and only there.
FAIR_GROUPS = 726_358

T = TypeVar("T")


class TopicNeeded(Exception):
    """The lock of this topic must be taken before any other lock, because a delivery holds it when it locks the run."""

    def __init__(self, wait: WaitFor) -> None:
        super().__init__(wait.topic)
        self.wait = wait


class RunNeeded(Exception):
    """The exclusive lock of the run must be taken before its other locks."""


def in_lock_order(database: Database, run_id: str, once: Callable[[Connection, bool], T], *, alone: bool = False) -> T:
    """Run `once` in a transaction that has locked the run, exclusively if `alone`; `once` gets `alone` as its argument.

    If `once` needs another lock (RunNeeded, TopicNeeded), the transaction is rolled back and repeated with that lock.
    Each repetition adds a lock, so the loop ends.
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
    """Change a row that the transaction has locked. Raises if the guard does not match, so that nothing inconsistent is
    committed."""
    if connection.execute(change).rowcount != 1:
        raise RuntimeError(f"{what} has changed since this transaction read it")


def lock_topics(connection: Connection, waits_for: Iterable[WaitFor]) -> list[WaitFor]:
    """Lock the topics of these waits. Returns the waits in lock order: a whole topic before its keys, because upgrading
    a shared lock to an exclusive one could deadlock."""
    in_order = sorted(waits_for, key=lambda one: (one.topic, one.key is not None, one.key or ""))
    for wait in in_order:
        lock_topic(connection, wait.topic, wait.key)
    return in_order


def need_topic(connection: Connection, wait: WaitFor) -> None:
    """Try-lock: the caller holds the lock of a run, so waiting here could deadlock."""
    if connection.dialect.name == "postgresql" and not all(_locks(connection, wait.topic, wait.key, "pg_try_advisory")):
        raise TopicNeeded(wait)


def lock_topic(connection: Connection, topic: str, key: str | None) -> None:
    """With a key, share the topic and lock the key exclusively. Without a key, lock the topic exclusively."""
    if connection.dialect.name == "postgresql":  # on SQLite, transactions exclude each other anyway
        _locks(connection, topic, key, "pg_advisory")


def _locks(connection: Connection, topic: str, key: str | None, how: str) -> Row[Any]:
    exclusive, shared = getattr(func, f"{how}_xact_lock"), getattr(func, f"{how}_xact_lock_shared")
    number = func.hashtext(topic)
    if key is None:
        return connection.execute(select(exclusive(TOPICS, number))).one()
    of_key = exclusive(KEYS, func.hashtext(f"{topic}{BETWEEN}{key}"))
    return connection.execute(select(shared(TOPICS, number), of_key)).one()
