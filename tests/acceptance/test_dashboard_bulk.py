"""An action on many runs goes on although the processes of the dashboard that execute it are killed or frozen."""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.request
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import select, update

from rival_client.db.operator_tables import bulk_outcomes, bulks
from rival_client.db.types import after
from rival_client.settings import Settings
from rival_client.sql import bulk_records
from rival_workers import step
from tests.acceptance.conftest import Cli, stop
from tests.support.inline import Inline
from tests.support.workers import wait_until
from tests.support.zygote import Forked

MANY = 150


class Board:
    """`rival dashboard` as a process, and a browser that is logged in."""

    def __init__(self, cli: Cli, number: int) -> None:
        self.process: Forked = cli.start("dashboard", "--port", "0", log=f"board{number}.log")
        cli.wait_for(f"board{number}.log", "Dashboard: http://127.0.0.1:…")
        link = cli.log(f"board{number}.log").split()[1]
        self._url, _, token = link.partition("#token=")
        self._cookie = ""
        self.ask("POST", "session", {"token": token})

    def stream(self, path: str) -> Any:
        headers = {"Sec-Fetch-Site": "same-origin", "Cookie": self._cookie}
        return urllib.request.urlopen(urllib.request.Request(f"{self._url}api/v1/{path}", headers=headers), timeout=30)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json", "Cookie": self._cookie}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}api/v1/{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            self._cookie = (answer.headers.get("set-cookie") or self._cookie).partition(";")[0]
            return json.loads(answer.read() or b"null")


@pytest.fixture
def rewindable(settings: Settings) -> Any:
    """Runs that have ended. A rewind that is done twice leaves two entries."""
    inline = Inline(settings.require_database())
    inline.define("one", step(lambda: 1, name="a"))
    inline.rival.run_many("one", [{}] * MANY, run_ids=[f"r{number:03}" for number in range(MANY)])
    inline.drain()
    yield inline
    inline.close()


def begun(board: Board) -> str:
    shown = board.ask("POST", "bulk", {"verb": "rewind", "step": "a", "filter": {"status": "completed"}, "limit": MANY})
    wait_until(lambda: board.ask("GET", f"bulk/{shown['id']}")["state"] == "done", 60, "the preview has ended")
    made = board.ask("POST", "bulk", {"preview": shown["id"], "dry_run": False})
    return str(made["id"])


def fall_silent(inline: Inline) -> bool:
    """False: a process has a transaction of the action open."""
    with inline.rival.database.transaction() as connection:
        free = select(bulks.c.id).with_for_update(skip_locked=True)
        silent = update(bulks).where(bulks.c.id.in_(free)).values(beat_at=after(-bulk_records.SILENT - 1))
        return connection.execute(silent).rowcount == 1


def ended_count(inline: Inline) -> int:
    with inline.rival.database.autocommit() as connection:
        return int(connection.execute(select(bulks.c.ended)).scalar_one())


def each_run_was_rewound_once(inline: Inline) -> None:
    with inline.rival.database.autocommit() as connection:
        rows = connection.execute(select(bulk_outcomes)).all()
    assert Counter(row.run_id for row in rows) == {f"r{number:03}": 1 for number in range(MANY)}
    assert sorted(row.number for row in rows) == list(range(1, MANY + 1))
    assert [row.run_id for row in rows if row.why is not None or row.opened != ["a"] or row.runs_again != 1] == []
    rewound = [len([one for one in inline.rival.history(row.run_id) if one.what == "rewind_run"]) for row in rows]
    assert rewound == [1] * MANY


@pytest.mark.slow
def test_an_action_survives_that_its_processes_are_killed(cli: Cli, rewindable: Inline) -> None:
    board = Board(cli, 0)
    action = begun(board)
    for number in range(1, 5):
        seen = ended_count(rewindable)
        wait_until(lambda seen=seen: ended_count(rewindable) > seen, 60, "the action moves")  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.05))
        board.process.kill()
        board.process.wait(20)
        wait_until(lambda: fall_silent(rewindable), 20, "the server has ended its transactions")
        board = Board(cli, number)
    wait_until(lambda: board.ask("GET", f"bulk/{action}")["state"] == "done", 60, "the action has ended")
    found = board.ask("GET", f"bulk/{action}")
    assert (found["ended"], found["refused"], found["total"]) == (MANY, 0, MANY)
    each_run_was_rewound_once(rewindable)


@pytest.mark.slow
def test_a_frozen_process_does_nothing_twice_when_it_goes_on(cli: Cli, rewindable: Inline) -> None:
    frozen = Board(cli, 0)
    action = begun(frozen)
    wait_until(lambda: ended_count(rewindable) > 3, 60, "the action moves")
    frozen.process.send_signal(signal.SIGSTOP)
    while not fall_silent(rewindable):
        frozen.process.send_signal(signal.SIGCONT)
        time.sleep(random.uniform(0, 0.005))
        frozen.process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
    board = Board(cli, 1)
    wait_until(lambda: board.ask("GET", f"bulk/{action}")["state"] == "done", 60, "the other one has done the rest")
    frozen.process.send_signal(signal.SIGCONT)
    wait_until(lambda: frozen.ask("GET", f"bulk/{action}")["state"] == "done", 60, "the frozen one has noticed")
    each_run_was_rewound_once(rewindable)
    stop(frozen.process, signal.SIGTERM)


@pytest.mark.slow
def test_streams_end_when_the_dashboard_is_stopped(cli: Cli, rewindable: Inline) -> None:
    board = Board(cli, 0)
    with board.stream("stream?run=r001&fleet=1") as answer:
        assert answer.readline().startswith(b"id: ")
        board.process.send_signal(signal.SIGTERM)
        lines = answer.read().decode().splitlines()
    assert "event: bye" in lines
    assert board.process.wait(10) == -signal.SIGTERM
    assert cli.log("board0.log").count("\n") == 1, "nothing but the link"


@pytest.mark.slow
def test_a_dashboard_that_is_stopped_leaves_its_actions_to_the_next_one(cli: Cli, rewindable: Inline) -> None:
    board = Board(cli, 0)
    action = begun(board)
    wait_until(lambda: ended_count(rewindable) > 3, 60, "the action moves")
    assert stop(board.process, signal.SIGTERM) == -signal.SIGTERM
    assert ended_count(rewindable) < MANY
    board = Board(cli, 1)
    wait_until(lambda: board.ask("GET", f"bulk/{action}")["state"] == "done", 20, "it goes on at once")
    each_run_was_rewound_once(rewindable)
