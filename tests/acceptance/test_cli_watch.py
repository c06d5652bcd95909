"""`rival show --watch` and `rival top`: what people see on a terminal, and what programs read."""

from __future__ import annotations

import json
import signal

import pytest

from tests.acceptance.conftest import Cli, assert_printed
from tests.support.workers import READY, wait_until

WORKFLOWS = """
from rival_workers import StepError, create_workflow

def pick(run):
    if run.attempt < 2:
        raise StepError("shelf is empty", behavior="retry")
    return 3

def pack():
    return "packed"

def wrong():
    raise ValueError("broken")

orders = create_workflow("order").step(pick, max_attempts=2, base_delay=0.01).wait_event("paid", "paid").step(pack)
orders.register()
create_workflow("wrong").step(wrong).register()
"""
#: Runs until the test makes the file, whatever the load.
HOLDING = """
import os, time
from rival_workers import breaker, create_workflow, step

def hold(input):
    while not os.path.exists(input["until"]):
        time.sleep(0.02)
    return "done"

create_workflow("held").step(hold, concurrency_limit=1, circuit_breaker=breaker("bank", on_open="wait")).register()
"""


def test_watch_excludes_sections_and_an_unknown_run_is_an_error(cli: Cli) -> None:
    for option in ("--history", "--timeline", "--logs"):
        cli("show", "a-1", "--watch", option, code=2).complains(
            "rival: --watch shows steps and attempts: use it without --history, --timeline and --logs "
            "(see `rival show --help`)"
        )
    cli("show", "a-1", "--watch", code=1).complains("rival: Unknown run 'a-1'. `rival ls` lists the runs.")
    assert cli("show", "a-1", "--watch", "--json", code=1).error["type"] == "RunNotFound"


@pytest.fixture
def ready(cli: Cli) -> Cli:
    (cli.directory / "flows.py").write_text(WORKFLOWS)
    cli.start("worker", "-w", "flows.py", "-p", "1", "-c", "2", log="worker.log")
    cli.wait_for("worker.log", READY)
    return cli


@pytest.mark.slow
def test_without_a_terminal_each_change_is_a_line_until_the_run_has_ended(ready: Cli) -> None:
    ready("run", "order", "--run-id", "a-1")
    watching = ready.start("show", "a-1", "--watch", log="watch.log")
    as_json = ready.start("show", "a-1", "--watch", "--json", log="watch.json")
    ready.wait_for("watch.log", "…:…:…  paid …waiting…")
    assert watching.poll() is None
    ready("emit", "paid", '{"card": "visa"}')
    assert (watching.wait(), as_json.wait()) == (0, 0)

    assert_printed(
        """
        …:…:…  a-1  started
        …:…:…  pick  claimed
        …:…:…  pick  retried  StepError: shelf is empty; again in <duration>
        …:…:…  pick  claimed  attempt 2
        …:…:…  pick  completed
        …:…:…  paid  waiting
        …:…:…  paid  event
        …:…:…  paid  woken
        …:…:…  paid  claimed
        …:…:…  paid  completed
        …:…:…  pack  claimed
        …:…:…  pack  completed
        …:…:…  a-1  completed
        """,
        ready.log("watch.log"),
        ready.directory,
    )
    # The same entries as in the history, with all that they have.
    lines = [json.loads(line) for line in ready.log("watch.json").splitlines()]
    history = ready("show", "a-1", "--history", "--json").json["history"]
    assert lines == [{"run_id": "a-1", **entry} for entry in history]


@pytest.mark.slow
def test_watching_a_run_that_fails_ends_with_exit_code_1(ready: Cli) -> None:
    ready("run", "wrong", "--run-id", "w-1", "--wait", code=1)
    ready("show", "w-1", "--watch", code=1).prints(
        """
        …:…:…  w-1  started
        …:…:…  wrong  claimed
        …:…:…  wrong  failed  ValueError: broken
        …:…:…  w-1  failing  ValueError: broken
        …:…:…  w-1  failed
        """
    )


@pytest.mark.slow
def test_on_a_terminal_the_run_is_redrawn_in_place(ready: Cli) -> None:
    ready("run", "order", "--run-id", "a-1")
    with ready.terminal("show", "a-1", "--watch", size=(140, 30)) as terminal:
        lines = terminal.wait_for_text("for an event")
        assert "status     suspended" in lines
        ready("emit", "paid", "{}")
        assert terminal.end() == 0
        # No line of an earlier drawing is left.
        assert_printed(
            """
            run  a-1
            workflow  order (version <version>)
            status  completed
            created  <time>
            took  <duration>
            input  null
            result  packed

            step  status  attempts  queued  took
            pick  completed  2  <duration>  <duration>  (attempt 1: StepError)
            paid  completed  1  <duration>  <duration>
            pack  completed  1  <duration>  <duration>

            step  attempt  outcome  took  error
            pick  1  failed  <duration>  StepError: shelf is empty
            pick  2  completed  <duration>

            pick, attempt 1:
              Traceback (most recent call last):
                File "<folder>/flows.py", line 6, in pick
                  raise StepError("shelf is empty", behavior="retry")
              rival_workers.errors.StepError: shelf is empty
            """,
            "\n".join(terminal.screen),
            ready.directory,
        )


@pytest.mark.slow
def test_ctrl_c_ends_the_watch_and_not_the_run(ready: Cli) -> None:
    ready("run", "order", "--run-id", "a-1")
    watching = ready.start("show", "a-1", "--watch", log="watch.log")
    ready.wait_for("watch.log", "…:…:…  paid …waiting…")
    watching.send_signal(signal.SIGINT)
    assert watching.wait() == 130
    assert "Traceback" not in ready.log("watch.log")
    assert ready("show", "a-1", "--json").json["status"] == "suspended"


# -- top --------------------------------------------------------------------------------------------------


def test_top_of_an_idle_fleet(cli: Cli) -> None:
    cli("top").prints(
        """
        runs  0 pending  0 running  0 suspended
        executors  0 alive  0 of 0 slots busy
        """
    )
    cli("top", "--interval", "0.1", code=2)
    none = {"count": 0, "more": False}
    cli("top", "--once", "--json").prints_json(
        {
            "at": "<time>",
            "runs": {"pending": none, "running": none, "suspended": none},
            "executors": [],
            "queues": [],
            "slowest": [],
            "limits": [],
            "breakers": [],
            "parked": [],
            "overdue": none,
            "cost": ...,
        }
    )


def test_top_shows_a_queue_that_no_worker_serves(shop: Cli) -> None:
    shop("run", "greet", '{"name": "ada"}')
    shop("top", "--once").prints(
        """
        runs  1 pending  0 running  0 suspended
        executors  0 alive  0 of 0 slots busy

        queue  waiting  oldest  served by
        default  1  <duration>  0 executors
        """
    )


@pytest.fixture
def busy(cli: Cli) -> Cli:
    """One step runs, one waits for its limit, a breaker was opened by an operator."""
    (cli.directory / "flows.py").write_text(HOLDING)
    cli.start("worker", "-w", "flows.py", "-p", "1", "-c", "3", "-Q", "default,gpu", log="worker.log")
    cli.wait_for("worker.log", READY)
    for name in ("first", "second"):
        cli("run", "held", json.dumps({"until": str(cli.directory / "go")}), "--run-id", name)
    wait_until(lambda: cli("limit", "ls", "--json").json[0]["waiting"] == 1, 30)
    cli("breaker", "open", "bank", "--by", "ann")
    wait_until(lambda: cli("top", "--json", "--once").json["executors"][0]["busy"] == 1, 30, "a heartbeat")
    return cli


BUSY = """
runs  0 pending  1 running  1 suspended
executors  1 alive  1 of 3 slots busy

executor  busy  queues  state
rival-…  1/3  default, gpu  alive

slowest step  run  workflow  for  on
hold  first  held  <duration>  rival-…

waits for limit  key  used  waiting  oldest
held/hold  1/1  1  <duration>

breaker  state  until  by
bank  open  an operator closes it  ann
"""


@pytest.mark.slow
def test_top_shows_load_slow_steps_limits_and_breakers(busy: Cli) -> None:
    busy("top").prints(BUSY)
    found = busy("top", "--json", "--once").json
    assert [(one["run_id"], one["path"], one["workflow"]) for one in found["slowest"]] == [("first", "hold", "held")]
    assert found["slowest"][0]["worker"] == found["executors"][0]["worker"]
    following = busy.start("top", "--json", "--interval", "0.5", log="top.json")
    wait_until(lambda: busy.log("top.json").count("\n") >= 3, 30)
    following.send_signal(signal.SIGINT)
    assert following.wait() == 130
    lines = [json.loads(line) for line in busy.log("top.json").split("\n") if line]
    assert all(one["limits"][0]["name"] == "held/hold" for one in lines)
    assert [one["at"] for one in lines] == sorted(one["at"] for one in lines)


@pytest.mark.slow
def test_top_fits_a_small_terminal_scrolls_pauses_and_leaves_it_as_it_was(busy: Cli) -> None:
    with busy.terminal("top", "--interval", "0.5", size=(80, 12)) as terminal:
        first = terminal.wait_for_text("q quit  p pause")
        assert len(first) == 12
        assert max(map(len, first)) <= 80
        assert first[-1].startswith("q quit  p pause  ↑↓ scroll  (")
        assert not any("bank" in line for line in first)
        terminal.press("\x1b[B" * 50)
        last = terminal.wait_for_text("bank")
        assert last[0].startswith("rival top")
        assert last[1:3] == first[1:3]
        assert last[-1] == "q quit  p pause  ↑↓ scroll"
        terminal.press("\x1b[A" * 50 + "p")
        paused = terminal.wait_for_text("p go on")
        assert paused[0].endswith("paused")
        (busy.directory / "go").touch()
        busy("wait", "first", "--timeout", "30")
        busy("cancel", "second")
        assert terminal.screen == paused
        terminal.press("p")
        terminal.wait_for_text("0 pending  0 running  0 suspended")
        assert terminal.settings != terminal.before
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.settings == terminal.before
        left, shown = terminal.raw.rfind(b"\x1b[?1049l"), terminal.raw.rfind(b"\x1b[?25h")
        assert left > terminal.raw.rfind(b"\x1b[?1049h"), "the alternate screen is left"
        assert shown > terminal.raw.rfind(b"\x1b[?25l"), "the cursor is shown"


@pytest.mark.slow
def test_top_in_80_columns_and_24_lines(busy: Cli) -> None:
    with busy.terminal("top") as terminal:
        lines = terminal.wait_for_text("q quit")
        terminal.press("q")
        assert terminal.end() == 0
    assert len(lines) == 24
    title, *shown, keys = lines
    assert_printed("rival top  …:…:…  … queries, <duration>  every 2 s", title, busy.directory)
    assert_printed(BUSY, "\n".join(shown).rstrip(), busy.directory)
    assert keys == "q quit  p pause  ↑↓ scroll"
