"""The checks of `rival doctor` on the broker: reachable, fast, not evicting messages, protected by a password."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import kombu
import redis

from rival_client.broker.doorbell import open_doorbell
from rival_client.broker.redis_connection import REDIS_BOUNDS, is_redis
from rival_client.model.masking import masked, without_secrets
from rival_workers.cli.doctor.checks import Check
from rival_workers.library import inproc_transport
from rival_workers.runtime.celery.broker_access import acl_line, denials, described, refused_login, user_of
from rival_workers.settings import WorkerSettings

#: More waiting messages than this: the fleet is too small, or down.
LONG_QUEUE = 10_000


def check_broker(settings: WorkerSettings) -> Iterator[Check]:
    url = settings.broker_url
    if not url:
        advice = "set RIVAL_BROKER_URL (redis://…), or start `rival dev` in this folder"
        yield Check("broker", "fail", "no broker is given", advice)
        return
    reached = _redis(settings, url) if is_redis(url) else _other(url)
    yield from reached
    if reached[0].status != "fail":
        yield _backlog(settings)
    if is_open_to_others(url):
        advice = "give it a password (requirepass, ACLs) and put it in the URL"
        yield Check("broker", "warn", "the broker is not on this machine and has no password", advice)


def _unreachable(url: str, error: Exception) -> list[Check]:
    advice = "check that it runs and that RIVAL_BROKER_URL is right; until then only the keeper starts steps, slowly"
    reason = without_secrets((str(error).splitlines() or [type(error).__name__])[0], url)
    return [Check("broker", "fail", f"the broker at {masked(url)} does not answer ({reason})", advice)]


def _redis(settings: WorkerSettings, url: str) -> list[Check]:
    client = redis.Redis.from_url(url, **REDIS_BOUNDS)
    try:
        client.ping()
        before = time.perf_counter()
        client.ping()
        latency = time.perf_counter() - before
        info = _info(client)
    except redis.AuthenticationError as error:
        return [Check("broker", "fail", refused_login(url, error), "RIVAL_BROKER_URL is redis://USER:PASSWORD@HOST")]
    except redis.exceptions.NoPermissionError:
        return [_access(settings, url)]
    except (redis.RedisError, ValueError) as error:
        return _unreachable(url, error)
    finally:
        client.close()
    server = f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info.get('redis_version')}"
    return [
        Check("broker", "ok", f"{server} at {masked(url)} answers in {latency * 1000:.1f} ms"),
        _policy(str(info.get("maxmemory_policy", "noeviction"))),
        _access(settings, url),
    ]


def _info(client: redis.Redis) -> dict[str, Any]:
    """INFO is optional: only this command uses it, so the Redis user need not have the permission."""
    try:
        return dict(client.info())
    except redis.exceptions.NoPermissionError:
        return {}


def _access(settings: WorkerSettings, url: str) -> Check:
    try:
        found = denials(settings)
    except redis.RedisError as error:
        return _unreachable(url, error)[0]
    if found:
        return Check("broker access", "fail", described(url, found), f"run as an administrator: {acl_line(url, found)}")
    return Check("broker access", "ok", f"user {user_of(url)!r} has all permissions that workers need")


def _policy(policy: str) -> Check:
    if policy == "noeviction":
        return Check("broker memory", "ok", "maxmemory-policy is noeviction")
    message = f"maxmemory-policy is {policy}: when memory is full, Redis deletes messages and runs are late"
    return Check("broker memory", "warn", message, "set maxmemory-policy to noeviction")


def _other(url: str) -> list[Check]:
    try:
        with kombu.Connection(url, connect_timeout=2) as connection:
            before = time.perf_counter()
            connection.ensure_connection(max_retries=1, timeout=3)
            latency = time.perf_counter() - before
    except Exception as error:
        # kombu's transports raise their own types; with any error the broker cannot be used.
        return _unreachable(url, error)
    return [Check("broker", "ok", f"{masked(url)} connects in {latency * 1000:.1f} ms")]


def _backlog(settings: WorkerSettings) -> Check:
    doorbell = open_doorbell(settings.broker_url, settings.queue, settings.key_prefix, settings.priorities)
    try:
        waiting = doorbell.backlog()
    finally:
        doorbell.close()
    if waiting is None:
        return Check("queue", "ok", f"the broker does not report the length of queue {settings.queue!r}")
    if waiting > LONG_QUEUE:
        advice = "start more workers; nothing is lost meanwhile"
        return Check("queue", "warn", f"{waiting:,} messages wait in queue {settings.queue!r}", advice)
    return Check("queue", "ok", f"{waiting:,} messages wait in queue {settings.queue!r}")


#: Sockets, and the broker of library mode, which is in the process.
_ON_THIS_MACHINE = ("unix", inproc_transport.SCHEME)


def is_open_to_others(url: str) -> bool:
    """No password, and not a loopback address, as far as the URL shows."""
    parts = urlsplit(url)
    if parts.password or parts.scheme in _ON_THIS_MACHINE or not parts.hostname or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return True
