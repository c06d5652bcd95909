"""Checks that the Redis user of the URL has the rights of a worker, and names the ACL rule for each missing one.
Without this check, Celery's loop ends with a traceback that names neither the user nor the rule.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis

from rival_client.broker.redis_connection import REDIS_BOUNDS, is_redis
from rival_client.broker.redis_doorbell import CHANGED_CHANNEL, EPOCH_KEY
from rival_client.errors import ConfigurationError
from rival_client.settings import masked
from rival_workers.settings import WorkerSettings

_COMMAND = re.compile(r"run the '([^']+)' command")


@dataclass(frozen=True)
class Denied:
    """A command that the user may not run, and the ACL rule that allows it."""

    what: str
    rule: str


def require_access(settings: WorkerSettings) -> None:
    """Raises ConfigurationError if the user lacks a right. An unreachable broker is not an error here."""
    url = settings.broker_url
    if not url or not is_redis(url):
        return
    try:
        found = denials(settings)
    except redis.AuthenticationError as error:
        raise ConfigurationError(refused_login(url, error)) from error
    except (redis.RedisError, OSError, ValueError):
        return
    if found:
        raise ConfigurationError(described(url, found))


def refused_login(url: str, error: Exception) -> str:
    return f"The broker at {masked(url)} refuses the login ({error}). Check user and password in RIVAL_BROKER_URL."


def described(url: str, found: list[Denied]) -> str:
    missing = ", ".join(dict.fromkeys(one.what for one in found))
    return (
        f"User {user_of(url)!r} lacks rights at the broker {masked(url)} that a worker needs: {missing}. "
        f"Add the rights: {acl_line(url, found)}"
    )


def user_of(url: str) -> str:
    return urlsplit(url).username or "default"


def acl_line(url: str, found: list[Denied]) -> str:
    return " ".join(["ACL SETUSER", user_of(url), *dict.fromkeys(one.rule for one in found)])


def denials(settings: WorkerSettings) -> list[Denied]:
    """The commands, keys and channels that a worker needs and the user may not use."""
    client = redis.Redis.from_url(settings.broker_url or "", **REDIS_BOUNDS)
    try:
        database = client.connection_pool.connection_kwargs.get("db") or 0
        found = list(_denied_commands(client, settings, database))
        return found + list(_denied_channel(client, settings, f"{settings.key_prefix}/{database}.celery.pidbox"))
    finally:
        client.close()


#: The commands of the doorbell and of kombu's transport.
_COMMANDS = """
LPUSH {queue} x
BRPOP {queue} 1
LLEN {queue}
LINDEX {queue} -1
SET {epoch} x NX
SADD {bindings} x
SREM {bindings} x
SMEMBERS {bindings}
DEL {bindings}
ZADD {deadlines} 0 x
ZRANGEBYSCORE {deadlines} -inf 0
EVALSHA {digest} 1 {deadlines}
PUBLISH {changed} x
PUBLISH {events} x
"""


def _commands(settings: WorkerSettings, database: int) -> list[tuple[str, ...]]:
    prefix = settings.key_prefix
    names = {
        "queue": prefix + settings.queue,
        "epoch": f"{prefix}{EPOCH_KEY}{settings.queue}",
        "bindings": f"{prefix}_kombu.binding.celery.pidbox",
        "deadlines": f"{prefix}_kombu.binding_deadlines",
        "digest": "0" * 40,
        "changed": f"{prefix}{CHANGED_CHANNEL}x",
        "events": f"{prefix}/{database}.celeryev/x",
    }
    # Split before the names are filled in: a prefix may contain spaces.
    return [tuple(word.format(**names) for word in line.split()) for line in _COMMANDS.strip().splitlines()]


def _denied_commands(client: Any, settings: WorkerSettings, database: int) -> Iterator[Denied]:
    """Within a transaction that is discarded: Redis checks rights when a command is queued, and runs nothing."""
    connection = client.connection_pool.get_connection()
    try:
        if denied := _ask(connection, settings, "MULTI"):
            yield denied
            return
        for command in _commands(settings, database):
            if denied := _ask(connection, settings, *command):
                yield denied
    finally:
        # Also discards the transaction, even if DISCARD is denied.
        connection.disconnect()
        client.connection_pool.release(connection)


def _ask(connection: Any, settings: WorkerSettings, *command: str) -> Denied | None:
    connection.send_command(*command)
    try:
        connection.read_response()
    except redis.exceptions.NoPermissionError as error:
        return _denied(error, command, settings)
    return None


def _denied_channel(client: Any, settings: WorkerSettings, channel: str) -> Iterator[Denied]:
    """The channel of remote commands: Flower, `celery control`, `celery inspect`."""
    pubsub = client.pubsub()
    try:
        pubsub.psubscribe(channel)
        pubsub.get_message(timeout=2)
    except redis.exceptions.NoPermissionError as error:
        yield _denied(error, ("PSUBSCRIBE", channel), settings)
    finally:
        with contextlib.suppress(redis.RedisError, OSError):
            pubsub.close()


def _denied(error: Exception, command: tuple[str, ...], settings: WorkerSettings) -> Denied:
    """The error text of Redis names the denied command, key or channel."""
    if by_command := _COMMAND.search(str(error)):
        return Denied(f"the command {by_command[1].upper()}", f"+{by_command[1].lower()}")
    if "channel" in str(error):
        # For PSUBSCRIBE, the ACL must allow the pattern literally, or all channels.
        literal = command[0] == "PSUBSCRIBE" and settings.key_prefix
        return Denied(
            f"{command[0]} on channel {command[1]!r}", f"&{command[1]}" if literal else f"&{settings.key_prefix}*"
        )
    key = command[3] if command[0] == "EVALSHA" else command[1]
    return Denied(f"{command[0]} on key {key!r}", f"~{settings.key_prefix}*")
