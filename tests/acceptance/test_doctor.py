"""`rival doctor`: what is wrong is found, named and comes with advice; what is well is not complained of."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import psycopg
from sqlalchemy import text

from rival_client import Rival
from rival_client.db.database_urls import libpq_url
from rival_client.model.why.why_facts import ABANDONED
from rival_client.settings import Settings
from rival_workers import step
from rival_workers.cli.doctor.broker_checks import is_open_to_others
from rival_workers.cli.doctor.checks import Check
from rival_workers.cli.doctor.database_checks import old_transaction
from rival_workers.engine.interpreter import first
from rival_workers.engine.plan import Plan
from rival_workers.store import health, open_store
from tests.acceptance.conftest import DOWN, Answer, Cli
from tests.support.inline import Inline
from tests.support.output import normalised, normalised_json


def statuses(answer: Any) -> dict[str, str]:
    """Check -> its worst status."""
    order = ("ok", "warn", "fail")
    found: dict[str, str] = {}
    for check in answer.json["checks"]:
        found[check["check"]] = max(check["status"], found.get(check["check"], "ok"), key=order.index)
    return found


def problems(answer: Answer) -> list[tuple[str, str, str, str | None]]:
    """The checks that are not ok, whole; without the warning about the short lease that the tests have."""
    checks = [normalised_json(check) for check in answer.json["checks"] if check["status"] != "ok"]
    found = [(one["check"], one["status"], one["message"], one["advice"]) for one in checks]
    return [one for one in found if one != SHORT_LEASE]


SHORT_LEASE = (
    "settings",
    "warn",
    "RIVAL_LEASE=2 s is short: a pause of a busy machine loses attempts",
    "use 5 s or more in production",
)
START_WORKERS = "start workers: `rival worker --workflows PATH`"
NO_WORKERS = ("workers", "warn", "no live executor", START_WORKERS)


def ok(check: str, message: str) -> dict[str, str | None]:
    return {"check": check, "status": "ok", "message": message, "advice": None}


def test_doctor_prints_every_check_in_order(cli: Cli) -> None:
    advice = {"check": "workers", "status": "warn", "message": "no live executor", "advice": START_WORKERS}
    checks = [
        ok("settings", "lease 15 s, queue '<queue>'"),
        ok("broker", "… at redis://:***@127.0.0.1:<port>/0 answers in <duration>"),
        ok("broker memory", "maxmemory-policy is noeviction"),
        ok("broker access", "user 'default' has all permissions that workers need"),
        ok("queue", "0 messages wait in queue '<queue>'"),
        ok("database", "Postgres … at postgresql://… answers in <duration>"),
        ok("durability", "fsync=on, synchronous_commit=on, full_page_writes=on"),
        ok("clock", "within <duration> of the database's"),
        ok("writes", "all tables can be read and written"),
        ok("schema", "at …, up to date"),
        advice,
        ok("backlog", "nothing is overdue"),
    ]
    cli("doctor", "--json", RIVAL_LEASE="15").prints_json({"healthy": True, "checks": checks})
    cli("doctor").prints(
        """
        warn settings  RIVAL_LEASE=2 s is short: a pause of a busy machine loses attempts
                           → use 5 s or more in production
        ok  broker  … at redis://:***@127.0.0.1:<port>/0 answers in <duration>
        ok  broker memory maxmemory-policy is noeviction
        ok  broker access user 'default' has all permissions that workers need
        ok  queue  0 messages wait in queue '<queue>'
        ok  database  Postgres … at postgresql://… answers in <duration>
        ok  durability  fsync=on, synchronous_commit=on, full_page_writes=on
        ok  clock  within <duration> of the database's
        ok  writes  all tables can be read and written
        ok  schema  at …, up to date
        warn workers  no live executor
                           → start workers: `rival worker --workflows PATH`
        ok  backlog  nothing is overdue
        """
    )


def test_doctor_finds_nothing_broken_on_a_fresh_database(cli: Cli) -> None:
    answer = cli("doctor", "--json", RIVAL_LEASE="15")
    found = statuses(answer)
    assert answer.json["healthy"] is True
    assert found.pop("workers") == "warn"  # none has been started
    assert set(found.values()) == {"ok"}


def test_doctor_says_what_to_do_about_missing_servers(bare: Cli) -> None:
    answer = bare("doctor", "--json", code=1)
    dev = "or start `rival dev` in this folder"
    assert problems(answer) == [
        ("broker", "fail", "no broker is given", f"set RIVAL_BROKER_URL (redis://…), {dev}"),
        ("database", "fail", "no database is given", f"set RIVAL_DATABASE_URL (postgresql://…), {dev}"),
    ]


def test_doctor_says_which_servers_are_down_and_no_secrets(bare: Cli) -> None:
    env = {"RIVAL_DATABASE_URL": DOWN, "RIVAL_BROKER_URL": "redis://:hush@127.0.0.1:1/0"}
    answer = bare("doctor", "--json", code=1, **env)
    assert {name for name, status in statuses(answer).items() if status == "fail"} == {"database", "broker"}
    [down] = [one for one in answer.json["checks"] if one["check"] == "database"]
    assert (down["message"], down["advice"]) == (
        "The database at postgresql://rival:***@127.0.0.1:1/rival does not answer (connection failed: connection to "
        'server at "127.0.0.1", port 1 failed: Connection refused)',
        "start it, or correct RIVAL_DATABASE_URL",
    )
    assert not {"s3cret", "hush"} & set(answer.out.replace("@", ":").split(":"))


def test_doctor_says_that_the_schema_is_behind(cli: Cli, empty_url: str) -> None:
    answer = cli("doctor", "--json", code=1, RIVAL_DATABASE_URL=empty_url)
    head = cli("db", "version", "--json").json["head"]
    assert problems(answer) == [("schema", "fail", f"at nothing, this Rival needs {head}", "run `rival db upgrade`")]


def test_doctor_says_which_settings_are_dangerous(cli: Cli) -> None:
    for env in ({"RIVAL_FAILPOINT": "after_finish_commit"}, {"RIVAL_LEASE": "0.5"}):
        assert statuses(cli("doctor", "--json", code=1, **env))["settings"] == "fail"
    for env in ({"RIVAL_LEASE": "2"}, {"RIVAL_RING_GRACE": "0.1"}, {"RIVAL_MAX_PAYLOAD": "999999999"}):
        assert statuses(cli("doctor", "--json", **env))["settings"] == "warn"


def test_doctor_says_that_commits_are_not_safe(cli: Cli, database_url: str, rival: Rival) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with rival.database.autocommit() as connection:
        connection.execute(text(f'ALTER DATABASE "{name}" SET synchronous_commit = off'))
    answer = cli("doctor", "--json", code=1)
    lost = "Postgres has synchronous_commit=off: a crash can lose committed steps"
    assert ("durability", "fail", lost, "set synchronous_commit=on") in problems(answer)


def test_doctor_finds_runs_that_no_worker_works_on(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "late")
    rival.run("greet", {"name": "ada"}, "parked")
    with rival.database.transaction() as connection:
        connection.execute(text("UPDATE rival_runs SET ring_at = now() - interval '1 hour' WHERE id = 'late'"))
        connection.execute(text("UPDATE rival_runs SET parked = 'nobody has it' WHERE id = 'parked'"))
    answer = shop("doctor", "--json", code=1)
    fleet = "the fleet is down, too small, or cannot reach the database: read the workers' logs"
    version = "start a worker that has that workflow at that version"
    assert problems(answer) == [
        ("workers", "fail", "no live executor, and runs are waiting", START_WORKERS),
        ("backlog", "warn", "1 run(s) or step(s) are overdue by more than a minute", fleet),
        ("parked", "warn", "1 run(s) or step(s) are parked: nobody has it", version),
    ]


def test_doctor_sees_executors_that_have_stopped_beating(cli: Cli, settings: Settings) -> None:
    store = open_store(settings.require_database())
    store.add_executor("alive", "elsewhere", 1, "w", lease=60)
    store.add_executor("dead", "elsewhere", 2, "w", lease=-1)
    store.close()
    answer = cli("doctor", "--json")
    advice = "nothing to do if workers just died: their steps are being taken over"
    assert problems(answer) == [("workers", "warn", "1 executor(s) have no heartbeat any more", advice)]
    assert ok("workers", "1 live executor") in answer.json["checks"]


def test_doctor_sees_a_database_that_is_read_only(cli: Cli, database_url: str, rival: Rival) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with rival.database.autocommit() as connection:
        connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    answer = cli("doctor", "--json", code=1)
    reason = "the database is read-only (default_transaction_read_only is on): no run starts and no step ends"
    advice = "connect to the primary, or make it writable; workers keep their outcomes until then"
    assert answer.json["healthy"] is False
    assert problems(answer) == [("writes", "fail", reason, advice), NO_WORKERS]
    printed = normalised(cli("doctor", code=1).out).splitlines()
    at = printed.index(f"fail writes  {reason}")
    assert printed[at + 1].strip() == f"→ {advice}"


def test_doctor_names_missing_privileges(cli: Cli, database_url: str, rival: Rival) -> None:
    name = f"limited_{uuid.uuid4().hex[:8]}"
    with rival.database.autocommit() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}"))
        connection.execute(text(f"REVOKE UPDATE ON rival_steps FROM {name}"))
    try:
        limited = database_url.replace("//rival@", f"//{name}@")
        assert limited != database_url
        answer = cli("doctor", "--json", code=1, RIVAL_DATABASE_URL=limited)
        advice = "GRANT SELECT, INSERT, UPDATE, DELETE on all rival_ tables to the role of RIVAL_DATABASE_URL"
        missing = ("privileges", "fail", "the role has no UPDATE on rival_steps", advice)
        assert problems(answer) == [missing, NO_WORKERS]
    finally:
        with rival.database.autocommit() as connection:
            connection.execute(text(f"DROP OWNED BY {name}"))
            connection.execute(text(f"DROP ROLE {name}"))


def test_doctor_names_an_executor_whose_event_loop_is_blocked(cli: Cli, settings: Settings) -> None:
    store = open_store(settings.require_database())
    store.add_executor("e", "elsewhere", 7, "w1@test", lease=60)
    store.beat("e", 60, "the event loop of async steps has been blocked for 32 s at flows.py:7 in fetch")
    answer = cli("doctor", "--json", code=1)
    blocked = "the event loop of async steps has been blocked for 32 s at flows.py:7 in fetch"
    advice = "await instead of blocking, or make it a sync step; restart that worker if it does not recover"
    assert problems(answer) == [("executors", "fail", f"w1@test (pid <pid> on elsewhere): {blocked}", advice)]
    store.beat("e", 60)
    store.close()
    assert "executors" not in statuses(cli("doctor", "--json"))


def test_doctor_warns_of_functions_that_still_run_although_their_attempts_are_over(
    cli: Cli, settings: Settings
) -> None:
    store = open_store(settings.require_database())
    store.add_executor("e", "elsewhere", 7, "w1@test", lease=60)
    report = f"{ABANDONED}: step 's' of run 'r'"
    store.beat("e", 60, report)
    advice = "they use slots until they return: restart that worker, and give every call in these steps a timeout"
    expected = ("abandoned attempts", "warn", f"w1@test (pid <pid> on elsewhere): {report}", advice)
    assert problems(cli("doctor", "--json")) == [expected]
    store.close()


def test_doctor_sees_attempts_that_no_executor_holds(shop: Cli, rival: Rival, settings: Settings) -> None:
    store = open_store(settings.require_database())
    store.add_executor("alive", "elsewhere", 1, "w", lease=60)
    rival.run("greet", {"name": "ada"}, "held")
    rival.run("greet", {"name": "ada"}, "unheld")
    workflow = next(w for w in rival.registry.list() if w.name == "greet")
    plan = Plan.load(workflow.plan)
    assert store.begin_run("held", 0, first(plan), claim_for="alive")
    assert statuses(shop("doctor", "--json"))["backlog"] == "ok"
    assert store.begin_run("unheld", 0, first(plan), claim_for="nothing")
    store.close()
    answer = shop("doctor", "--json", code=1)
    message = "1 attempt(s) are running on no live executor, such as run unheld step greet"
    advice = "start a worker: it releases them within two minutes; if workers are running, read their logs"
    assert problems(answer) == [("attempts", "fail", message, advice)]


def test_doctor_names_the_session_whose_old_transaction_keeps_dead_rows(rival: Rival, database_url: str) -> None:
    """Five minutes are too long for a test, so it asks for younger ones, and for what is said about an old one."""
    assert health.read_old_transaction(rival.database, older_than=0.0) is None
    with psycopg.connect(libpq_url(database_url), application_name="report") as other:
        # Without a snapshot, nothing is kept.
        other.execute("BEGIN")
        other.execute("SHOW server_version")
        assert health.read_old_transaction(rival.database, older_than=0.0) is None
        other.rollback()
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1 FROM rival_runs")
        found = health.read_old_transaction(rival.database, older_than=0.0)
        assert found is not None
        assert (found.pid, found.session) == (other.info.backend_pid, f"report of {other.info.user}")
        assert health.read_old_transaction(rival.database) is None
    [check] = old_transaction(replace(found, pid=12, session="psql of ana", seconds=600.0))
    has = "has had a transaction open for 10 min: dead rows are kept, and full queues become slow"
    advice = "end it, or let the server do so: SELECT pg_terminate_backend(12)"
    assert check == Check("transactions", "warn", f"session 12 (psql of ana) {has}", advice)


def test_doctor_warns_of_a_broker_that_is_open_to_others() -> None:
    assert is_open_to_others("redis://cache.internal:6379/0")
    assert is_open_to_others("redis://10.0.0.7:6379/0")
    for safe in (
        "redis://127.0.0.1:6379",
        "redis://localhost",
        "redis://[::1]:6379",
        "redis://:pw@10.0.0.7",
        "unix:///x",
        "rival-inproc://3ee4db85832c/",
    ):
        assert not is_open_to_others(safe)


def test_doctor_names_a_queue_that_no_worker_serves(cli: Cli, settings: Settings) -> None:
    inline = Inline(settings.require_database())
    inline.define("film", step(lambda: 1, name="render", queue="gpu"))
    inline.rival.run("film", None, "r")
    inline.drain()
    found = problems(cli("doctor", "--json", code=1))
    inline.close()
    message = "no live worker serves queue 'gpu', for which runs or steps wait, such as run r step render"
    assert ("queues", "fail", message, "start a worker for it: `rival worker -Q gpu --workflows PATH`") in found
