"""A tick has exactly one run, however many keepers look; missed ticks are caught up with as the schedule says."""

from __future__ import annotations

import datetime as dt
import random
import string
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from rival_client import Rival, RivalError
from rival_client.db.database import Database
from rival_client.db.fleet_tables import schedules
from rival_client.db.run_tables import runs
from rival_client.db.types import after, now
from rival_client.model.cron import Rule
from rival_client.model.payload import NULL, Json
from rival_client.model.starts.planned_schedules import CatchUp, Planned
from rival_client.settings import Settings
from rival_client.sql.reads.schedule_reads import list_schedules
from rival_client.sql.schedules import put_schedule
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.sql import schedules as scheduling
from tests.contract.stage import PLAN, Stage
from tests.support.inline import CollectingDoorbell, Inline
from tests.support.output import is_printed, whole
from tests.support.threads import join_all

DAY = 86_400.0


def put(stage: Stage, rule: Rule, catch_up: CatchUp = "none", its_input: Json = NULL, name: str = "s") -> None:
    with stage.database.transaction() as connection:
        put_schedule(connection, name, "w", Planned(rule, catch_up, its_input))


def at_another_hour(stage: Stage) -> Rule:
    """A daily tick that is many hours away, before and after now."""
    with stage.database.transaction() as connection:
        current = connection.scalar(select(now()))
    assert current is not None
    return Rule(f"30 {(current.hour + 12) % 24} * * *")


def row(stage: Stage, name: str = "s") -> dict[str, object]:
    with stage.database.transaction() as connection:
        return dict(connection.execute(select(schedules).where(schedules.c.name == name)).mappings().one())


def run_ids(stage: Stage) -> list[str]:
    with stage.database.transaction() as connection:
        return list(connection.scalars(select(runs.c.id).order_by(runs.c.id)))


def test_nothing_is_fired_before_its_time(stage: Stage) -> None:
    put(stage, at_another_hour(stage))
    assert stage.store.fire_schedules(10) == []


def test_a_due_tick_starts_one_run_with_its_input_and_the_id_that_says_when(stage: Stage) -> None:
    put(stage, Rule(every=10), its_input=Json('{"x":2}'))
    due = row(stage)["next_at"]
    assert isinstance(due, dt.datetime)
    stage.time_passes(10)
    [fired] = stage.store.fire_schedules(10)
    assert (fired.workflow, fired.version) == ("w", stage.workflow.version)
    assert fired.run_id.startswith("s@")
    assert fired.run_id.endswith("Z")
    assert int(fired.run_id[-3:-1]) % 10 == 0
    run = stage.run(fired.run_id)
    assert (run["status"], run["input"], run["rings"]) == ("pending", {"x": 2}, 0)
    assert stage.store.fire_schedules(10) == []
    assert run_ids(stage) == [fired.run_id]


@pytest.mark.parametrize(("catch_up", "count"), [("none", 0), ("last", 1), ("all", 3)])
def test_what_the_fleet_has_missed_is_caught_up_with(stage: Stage, catch_up: CatchUp, count: int) -> None:
    put(stage, at_another_hour(stage), catch_up)
    stage.time_passes(3 * DAY)
    fired = stage.store.fire_schedules(10)
    assert len(fired) == count
    assert [one.run_id for one in fired] == run_ids(stage)
    next_at = row(stage)["next_at"]
    assert isinstance(next_at, dt.datetime)
    assert next_at.minute == 30
    assert (row(stage)["last_at"] is None) == (count == 0)


def test_a_tick_that_has_a_run_already_gets_no_other(stage: Stage) -> None:
    put(stage, at_another_hour(stage), "last")
    stage.time_passes(DAY)
    before = row(stage)["next_at"]
    [fired] = stage.store.fire_schedules(10)
    with stage.database.transaction() as connection:
        connection.execute(schedules.update().values(next_at=before))
    assert stage.store.fire_schedules(10) == []
    assert run_ids(stage) == [fired.run_id]


def test_registering_again_keeps_what_was_missed(stage: Stage) -> None:
    rule = at_another_hour(stage)
    stage.store.keep_schedule("w", Planned(rule, "all", NULL))
    stage.time_passes(2 * DAY)
    stage.store.keep_schedule("w", Planned(rule, "all", Json('{"x":3}')))
    fired = stage.store.fire_schedules(10)
    assert len(fired) == 2
    assert stage.run(fired[0].run_id)["input"] == {"x": 3}


def test_another_rule_counts_from_now_on(stage: Stage) -> None:
    stage.store.keep_schedule("w", Planned(Rule(every=10), "all", NULL))
    stage.time_passes(3 * DAY)
    stage.store.keep_schedule("w", Planned(at_another_hour(stage), "all", NULL))
    assert stage.store.fire_schedules(10) == []


def test_a_workflow_without_a_schedule_loses_its_own_and_only_that(stage: Stage) -> None:
    stage.store.keep_schedule("w", Planned(Rule(every=10), "none", NULL))
    put(stage, Rule(every=10), name="another")
    stage.store.keep_schedule("w", None)
    with stage.database.transaction() as connection:
        assert [one.name for one in list_schedules(connection)] == ["another"]


def test_a_schedule_that_cannot_be_fired_does_not_hold_up_the_others(stage: Stage) -> None:
    for name in ("good", "no-workflow", "no-zone"):
        put(stage, Rule(every=10), "last", name=name)
    stage.force("UPDATE rival_schedules SET workflow = 'gone' WHERE name = 'no-workflow'")
    stage.force("UPDATE rival_schedules SET cron = '* * * * *', every = NULL, timezone = 'X/Y' WHERE name = 'no-zone'")
    stage.time_passes(100)
    fired = stage.store.fire_schedules(10)
    assert {one.run_id.split("@")[0] for one in fired} == {"good"}
    assert str(row(stage, "no-workflow")["error"]) == "unknown workflow 'gone'"
    assert str(row(stage, "no-zone")["error"]) == "ZoneInfoNotFoundError: 'No time zone found with key X/Y'"
    stage.force("UPDATE rival_schedules SET workflow = 'w' WHERE name = 'no-workflow'")
    assert "no-workflow" in {one.run_id.split("@")[0] for one in stage.store.fire_schedules(10)}
    assert row(stage, "no-workflow")["error"] is None


@pytest.mark.parametrize(
    ("table", "column", "error"),
    [
        ("rival_schedules", "input", "its input is not JSON: Expecting value: line 1 column 7 (char 6)"),
        ("rival_workflows", "plan", "JSONDecodeError: Expecting value: line 1 column 7 (char 6)"),
    ],
    ids=["input", "plan"],
)
def test_a_schedule_whose_json_is_corrupt_does_not_hold_up_the_others(
    sqlite_stage: Stage, table: str, column: str, error: str
) -> None:
    """Only SQLite stores what is not JSON."""
    stage = sqlite_stage
    stage.store.register_workflow("broken", PLAN, None, None)
    for name in ("bad", "good"):
        put(stage, Rule(every=10), "last", name=name)
    stage.force("UPDATE rival_schedules SET workflow = 'broken' WHERE name = 'bad'")
    stage.force(f"UPDATE {table} SET {column} = '{{\"x\": ' WHERE name IN ('bad', 'broken')")
    stage.time_passes(100)
    assert {one.run_id.split("@")[0] for one in stage.store.fire_schedules(10)} == {"good"}
    with stage.database.autocommit() as connection:
        found = {one.name: one.error for one in list_schedules(connection)}
    assert found == {"good": None, "bad": error}


def test_a_schedule_that_the_database_refuses_to_fire_does_not_hold_up_the_others(pg_stage: Stage) -> None:
    """The id of its run is longer than what an index of Postgres takes."""
    bad = "bad" + "".join(random.Random(1).choices(string.ascii_letters, k=2670))
    for name in (bad, "good"):
        put(pg_stage, Rule(every=10), "last", name=name)
    pg_stage.time_passes(100)
    assert {one.run_id.split("@")[0] for one in pg_stage.store.fire_schedules(10)} == {"good"}
    why = 'ProgramLimitExceeded: index row size … exceeds btree version … maximum … for index "rival_runs_pkey"'
    error = f"The database at … has rejected a statement ({why}). Nothing was changed by it. …"
    assert is_printed([error], [str(row(pg_stage, bad)["error"])])


def test_each_of_very_many_schedules_that_fail_is_tried(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "_AGAIN", 1)
    for number in range(5):
        put(stage, Rule(every=10), "last", name=f"s{number}")
    stage.force("UPDATE rival_schedules SET workflow = 'gone'")
    stage.time_passes(100)
    stage.store.fire_schedules(10)
    stage.force("UPDATE rival_schedules SET workflow = 'w' WHERE name = 's4'")
    # One is tried at a time, at random: that s4 has no turn in 200 rounds has a probability of 0.8 ** 200.
    fired = (one for _ in range(200) for one in stage.store.fire_schedules(1))
    assert next(fired).run_id.startswith("s4@")


def test_the_next_look_is_at_the_next_tick(stage: Stage) -> None:
    put(stage, Rule(every=3600))
    look = stage.store.next_look()
    assert look is not None
    assert 0 < look <= 3600


# -- many keepers at once ---------------------------------------------------------------------------------


@pytest.fixture
def rivals_of_one(postgres_url: str) -> Iterator[list[PostgresStore]]:
    stores = [PostgresStore(Database(postgres_url)) for _ in range(4)]
    yield stores
    for store in stores:
        store.close()


def test_keepers_that_fire_the_same_ticks_at_once_start_one_run_of_each(
    pg_stage: Stage, rivals_of_one: list[PostgresStore]
) -> None:
    names = {f"s{n}" for n in range(20)}
    for name in names:
        put(pg_stage, at_another_hour(pg_stage), "all", name=name)
    pg_stage.time_passes(2 * DAY)
    fired: list[str] = []
    start = threading.Barrier(len(rivals_of_one))

    def keep(store: PostgresStore) -> None:
        start.wait()
        for _ in range(10):
            fired.extend(one.run_id for one in store.fire_schedules(3))

    threads = [threading.Thread(target=keep, args=(store,)) for store in rivals_of_one]
    for thread in threads:
        thread.start()
    join_all(threads)
    assert len(fired) == len(set(fired)) == 2 * len(names)
    assert sorted(fired) == sorted(run_ids(pg_stage))


def test_a_keeper_passes_over_what_another_is_firing(pg_stage: Stage, rivals_of_one: list[PostgresStore]) -> None:
    put(pg_stage, at_another_hour(pg_stage), "last")
    pg_stage.time_passes(DAY)
    with pg_stage.database.transaction() as connection:
        connection.execute(select(schedules).with_for_update()).all()
        assert rivals_of_one[0].fire_schedules(10) == []
    assert len(rivals_of_one[0].fire_schedules(10)) == 1


# -- the client and the keeper ----------------------------------------------------------------------------


@pytest.fixture
def client(stage: Stage) -> Rival:
    return Rival(settings=Settings(), database=stage.database, doorbell=CollectingDoorbell())


def test_a_producer_adds_lists_changes_and_removes_schedules(stage: Stage, client: Rival) -> None:
    added = client.schedule("w", "0 2 * * *", name="nightly", input={"x": 1}, timezone="Europe/Berlin", catch_up="last")
    assert (added.cron, added.timezone, added.catch_up, added.input, added.own) == (
        "0 2 * * *",
        "Europe/Berlin",
        "last",
        {"x": 1},
        False,
    )
    assert client.schedules() == client.schedules("w") == [added]
    assert client.schedules("other") == []
    changed = client.schedule("w", 60, name="nightly")
    assert (changed.cron, changed.every, changed.input) == (None, 60, None)
    assert client.unschedule("nightly") is True
    assert client.unschedule("nightly") is False
    assert client.schedules() == []


def test_a_schedule_cannot_take_the_name_of_a_workflow(stage: Stage, client: Rival) -> None:
    with pytest.raises(
        RivalError,
        match=whole(
            "Invalid argument name: 'w' is the name of a workflow, whose own schedule it would be. Choose another name."
        ),
    ):
        client.schedule("w", 60, name="w")


@pytest.mark.parametrize("options", [{"catch_up": "some"}, {"timezone": "X/Y"}, {"name": ""}])
def test_a_producer_gets_an_error_at_once_for_an_invalid_schedule(client: Rival, options: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        client.schedule("w", "* * * * *", **{"name": "s", **options})  # type: ignore[arg-type]
    assert client.schedules() == []


def test_the_keeper_publishes_the_runs_that_it_has_fired(postgres_url: str) -> None:
    def tock() -> int:
        return 1

    inline = Inline(postgres_url)
    inline.define("tick", tock, schedule=1)
    try:
        with inline.store.database.transaction() as connection:
            connection.execute(schedules.update().values(next_at=after(-1)))
        done = inline.keeper.run_once()
        assert done.scheduled >= 1
        assert {message.run_id for message in inline.drain() if message.path is None} == {
            run.run_id for run in inline.rival.runs(status="completed")
        }
        assert len(inline.rival.runs(status="completed")) == done.scheduled
    finally:
        inline.close()
