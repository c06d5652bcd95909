"""The checks of `rival doctor` on the database and on the fleet whose rows it has."""

from __future__ import annotations

from collections.abc import Iterator

from rival_client.db.database import Database
from rival_client.errors import ConfigurationError, DatabaseError, DatabaseUnavailable
from rival_client.model.starts.queues import broker_queue
from rival_client.model.why.why_facts import ABANDONED
from rival_client.settings import masked
from rival_workers.cli import connection
from rival_workers.cli.doctor.checks import Check, Status
from rival_workers.settings import WorkerSettings
from rival_workers.store import health, migrations

MAX_SKEW = 1.0
SLOW = 0.05


def check_database(settings: WorkerSettings) -> Iterator[Check]:
    """All of them, in their order."""
    if not settings.database_url:
        advice = "set RIVAL_DATABASE_URL (postgresql://…), or start `rival dev` in this folder"
        yield Check("database", "fail", "no database is given", advice)
        return
    try:
        database = Database(settings.database_url)
    except ConfigurationError as error:
        yield Check("database", "fail", str(error), "correct RIVAL_DATABASE_URL")
        return
    try:
        yield from _check_opened(database)
    finally:
        database.dispose()


def _check_opened(database: Database) -> Iterator[Check]:
    try:
        yield from _check_server(database)
        yield from _check_access(database)
        schema = _check_migrations(database)
        yield schema
        if schema.status != "fail":
            yield from _check_fleet(database)
    except DatabaseUnavailable as error:
        yield Check("database", "fail", error.problem, "start it, or correct RIVAL_DATABASE_URL")
    except DatabaseError as error:
        yield Check("database", "fail", error.problem, "correct what the other checks name, then run this again")


def _check_server(database: Database) -> Iterator[Check]:
    """Raises DatabaseUnavailable if the database cannot be reached."""
    server = health.read_server(database)
    message = f"{server.version} at {masked(database.url)} answers in {server.latency * 1000:.1f} ms"
    if server.latency > SLOW:
        advice = "every step waits for at least one round trip: run workers near the database"
        yield Check("database", "warn", message, advice)
    else:
        yield Check("database", "ok", message)
    yield from _durability(server)
    yield from _connections(server)
    yield _clock(server)


def _durability(server: health.Server) -> Iterator[Check]:
    off = [name for name, value in server.settings.items() if value == "off"]
    for name in off:
        yield Check(
            "durability", "fail", f"Postgres has {name}=off: a crash can lose committed steps", f"set {name}=on"
        )
    if server.settings and not off:
        yield Check("durability", "ok", ", ".join(f"{name}={value}" for name, value in server.settings.items()))


def _connections(server: health.Server) -> Iterator[Check]:
    if server.connections is not None and server.connections[0] > 0.9 * server.connections[1]:
        used, most = server.connections
        advice = "raise max_connections, or run fewer worker processes"
        yield Check("connections", "warn", f"{used} of {most} connections are in use", advice)


def _clock(server: health.Server) -> Check:
    if abs(server.skew) <= MAX_SKEW:
        return Check("clock", "ok", f"within {max(abs(server.skew), 0.001) * 1000:.0f} ms of the database's")
    ahead = "ahead of" if server.skew > 0 else "behind"
    advice = "run NTP on both; countdowns of retries and the times in logs are wrong by this difference"
    return Check("clock", "warn", f"this machine's clock is {abs(server.skew):.1f} s {ahead} the database's", advice)


def _check_migrations(database: Database) -> Check:
    found, head = migrations.version(database), migrations.head()
    if found == head:
        return Check("schema", "ok", f"at {head}, up to date")
    if found is not None and found > head:
        return Check("schema", "warn", f"at {found}, newer than this Rival's {head}", "upgrade Rival here")
    return Check("schema", "fail", f"at {found or 'nothing'}, this Rival needs {head}", "run `rival db upgrade`")


def _check_access(database: Database) -> Iterator[Check]:
    """Whether workers and producers can write."""
    access = health.read_access(database)
    if access.read_only:
        advice = "connect to the primary, or make it writable; workers keep their outcomes until then"
        message = f"the database is read-only ({access.read_only}): no run starts and no step ends"
        yield Check("writes", "fail", message, advice)
    if access.missing:
        shown = ", ".join(access.missing[:4]) + (f" and {len(access.missing) - 4} more" if access.missing[4:] else "")
        advice = "GRANT SELECT, INSERT, UPDATE, DELETE on all rival_ tables to the role of RIVAL_DATABASE_URL"
        yield Check("privileges", "fail", f"the role has no {shown}", advice)
    if not access.read_only and not access.missing:
        yield Check("writes", "ok", "all tables can be read and written")


def _problem(problem: str) -> Check:
    if ABANDONED in problem:
        advice = "they use slots until they return: restart that worker, and give every call in these steps a timeout"
        return Check("abandoned attempts", "warn", problem, advice)
    advice = "await instead of blocking, or make it a sync step; restart that worker if it does not recover"
    return Check("executors", "fail", problem, advice)


def _check_fleet(database: Database) -> Iterator[Check]:
    liveness, backlog = health.read_liveness(database), health.read_backlog(database)
    yield _workers(liveness, backlog)
    if liveness.stale:
        advice = "nothing to do if workers just died: their steps are being taken over"
        yield Check("workers", "warn", f"{liveness.stale} executor(s) have no heartbeat any more", advice)
    yield from map(_problem, health.read_problems(database))
    yield from _stray_attempts(health.read_stray_attempts(database))
    yield _overdue(backlog)
    yield from old_transaction(health.read_old_transaction(database))
    if liveness.live:
        yield from map(_unserved, health.read_unserved_queues(database))
    if backlog.parked:
        message = f"{backlog.parked} run(s) or step(s) are parked: {backlog.parked_why}"
        yield Check("parked", "warn", message, "start a worker that has that workflow at that version")


def _workers(liveness: health.Liveness, backlog: health.Backlog) -> Check:
    if liveness.live:
        return Check("workers", "ok", f"{liveness.live} live executor{'' if liveness.live == 1 else 's'}")
    waiting = ", and runs are waiting" if backlog.open_runs else ""
    status: Status = "fail" if backlog.open_runs else "warn"
    return Check("workers", status, f"no live executor{waiting}", f"start workers: {_command()}")


def _unserved(found: health.UnservedQueue) -> Check:
    message = f"no live worker serves queue {found.queue!r}, for which runs or steps wait, such as {found.example}"
    return Check("queues", "fail", message, f"start a worker for it: {_command(found.queue)}")


def _command(queue: str | None = None) -> str:
    """What starts a worker: for a Celery app its own, which have Rival's queue beside the app's."""
    app = connection.of_app
    if app is None:
        return f"`rival worker{'' if queue is None else f' -Q {queue}'} --workflows PATH`"
    return f"`celery -A APP worker -Q celery,{broker_queue(queue, app.queue)}`"


def _stray_attempts(strays: health.StrayAttempts) -> Iterator[Check]:
    if strays.count:
        message = f"{strays.count} attempt(s) are running on no live executor, such as {strays.example}"
        advice = "start a worker: it releases them within two minutes; if workers are running, read their logs"
        yield Check("attempts", "fail", message, advice)


def _overdue(backlog: health.Backlog) -> Check:
    if not backlog.overdue:
        return Check("backlog", "ok", "nothing is overdue")
    message = f"{backlog.overdue} run(s) or step(s) are overdue by more than a minute"
    advice = "the fleet is down, too small, or cannot reach the database: read the workers' logs"
    return Check("backlog", "warn", message, advice)


def old_transaction(found: health.OpenTransaction | None) -> Iterator[Check]:
    """A warning about what slows down full queues, if there is one."""
    if found is not None:
        open_for = f"has had a transaction open for {found.seconds / 60:.0f} min"
        message = f"session {found.pid} ({found.session}) {open_for}: dead rows are kept, and full queues become slow"
        advice = f"end it, or let the server do so: SELECT pg_terminate_backend({found.pid})"
        yield Check("transactions", "warn", message, advice)
