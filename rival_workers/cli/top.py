"""`rival top`: the fleet and its runs as a page, read again and again. All reads are bounded and read-only."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rival_client.db.read_only import Cost, ReadOnlyDatabase, counted
from rival_client.errors import DatabaseUnavailable
from rival_client.model.policies.breakers import BreakerRecord
from rival_client.model.starts.queues import DEFAULT_QUEUE
from rival_client.settings import Settings
from rival_client.sql.breakers import list_breakers
from rival_client.sql.reads import fleet_reads, queue_reads
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.fleet_reads import Parked
from rival_client.sql.reads.queue_reads import LimitQueue, QueueBacklog
from rival_client.sql.reads.run_counts import count_open
from rival_workers.cli.connection import resolved
from rival_workers.cli.display.formats import one_line, seconds_text
from rival_workers.cli.display.output import console, json_option, print_json, print_json_line, table


@click.command()
@click.option(
    "--interval", type=click.FloatRange(min=0.5), default=2.0, metavar="SECONDS", help="Seconds between two reads."
)
@click.option("--once", is_flag=True, help="Print it once; the default without a terminal.")
@json_option
def top(interval: float, once: bool, as_json: bool) -> int:
    """Watch the fleet: workers, queues, open runs, the slowest steps, and what waits for limits and breakers."""
    out = console()
    database = ReadOnlyDatabase(resolved(Settings).require_database(), pool_size=1)
    try:
        if as_json:
            _print_json(database, interval, once)
        elif once or not (out.is_terminal and sys.stdin.isatty()):
            found = read_overview(database)
            out.print(Group(*header(found), *sections(found)))
        else:
            FullScreen(out, interval, lambda: page_of(read_overview(database))).run()
    finally:
        database.dispose()
    return 0


def _print_json(database: ReadOnlyDatabase, interval: float, once: bool) -> None:
    """One object, or one per line until Ctrl-C."""
    if once:
        print_json(_as_json(read_overview(database)))
        return
    while True:
        print_json_line(_as_json(read_overview(database)))
        time.sleep(interval)


def _as_json(found: Overview) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"slowest": [one | {"seconds": age_of(found, one)} for one in found.slowest]}


def page_of(found: Overview) -> Page:
    cost = f"{found.cost.queries} queries, {found.cost.ms:.0f} ms"
    return Page(f"rival top  {found.at.astimezone():%H:%M:%S}  {cost}", header(found), sections(found))


def header(found: Overview) -> list[Text]:
    """Two lines: what there is, and how busy it is."""
    alive = [one for one in found.executors if one.is_alive]
    slots, busy = (sum(getattr(one, name) or 0 for one in alive) for name in ("slots", "busy"))
    runs = "  ".join(f"{_number(count)} {status}" for status, count in found.runs.items())
    parked = Count.together(one.runs for one in found.parked)
    dead = len(found.executors) - len(alive)
    fleet = [
        f"{len(alive)} alive",
        f"{dead} dead" if dead else "",
        f"{busy} of {slots} slots busy",
        f"{_number(parked)} parked" if parked.count else "",
        f"{_number(found.overdue)} overdue" if found.overdue.count else "",
    ]
    lines = {"runs": runs, "executors": "  ".join(part for part in fleet if part)}
    return [Text.assemble((f"{name:11}", "bold"), text) for name, text in lines.items()]


def sections(found: Overview) -> list[RenderableType]:
    shown: list[RenderableType] = []
    for columns, rows in (
        (("executor", "busy", "queues", "state"), [_executor(one) for one in found.executors]),
        (("queue", "waiting", "oldest", "served by"), [_queue(one, found) for one in found.queues]),
        (("slowest step", "run", "workflow", "for", "on"), [_attempt(one, found) for one in found.slowest]),
        (("waits for limit", "key", "used", "waiting", "oldest"), [_limit(one, found) for one in found.limits]),
        (("breaker", "state", "until", "by"), [_breaker(one) for one in found.breakers]),
        (("parked", "version", "runs", "why"), [_parked(one) for one in found.parked]),
    ):
        if rows:
            shown += [Text(), table(columns, rows)]
    return shown


def _executor(one: ExecutorRecord) -> tuple[Any, ...]:
    state = one.problem or ("alive" if one.is_alive else "dead")
    load = "" if one.slots is None else f"{one.busy or 0}/{one.slots}"
    return one_line(one.worker, 36), load, one_line(", ".join(one.queues or ()), 20), one_line(state, 60)


def _queue(one: QueueBacklog, found: Overview) -> tuple[Any, ...]:
    name = one.queue or DEFAULT_QUEUE
    serve = sum(worker.is_alive and name in (worker.queues or (DEFAULT_QUEUE,)) for worker in found.executors)
    return name, _number(one.waiting), _since(one.oldest, found), f"{serve} executor{'' if serve == 1 else 's'}"


def _attempt(one: dict[str, Any], found: Overview) -> tuple[Any, ...]:
    lasts = seconds_text(age_of(found, one))
    return one_line(one["path"], 24), one_line(one["run_id"], 20), one_line(one["workflow"], 16), lasts, one["worker"]


def _limit(one: LimitQueue, found: Overview) -> tuple[Any, ...]:
    return one.name, one_line(one.key, 20), f"{one.used}/{one.max}", _number(one.waiting), _since(one.oldest, found)


def _breaker(one: BreakerRecord) -> tuple[Any, ...]:
    until = "an operator closes it" if one.until is None else f"{one.until.astimezone():%H:%M:%S}"
    return one.name, one.state, until if one.state == "open" else "", one_line(one.changed_by, 30)


def _parked(one: Parked) -> tuple[Any, ...]:
    return one.workflow, one.version, _number(one.runs), one_line(one.why, 60)


def _number(count: Count) -> str:
    return f"{count.count:,}{'+' if count.more else ''}"


def _since(when: dt.datetime, found: Overview) -> str:
    return seconds_text(max(0.0, (found.at - when).total_seconds()))


#: Running steps that are shown.
_SLOWEST = 20


@dataclass(frozen=True)
class Overview:
    """The fleet at one moment."""

    at: dt.datetime
    runs: dict[str, Count]
    executors: list[ExecutorRecord]
    queues: list[QueueBacklog]
    slowest: list[dict[str, Any]]
    limits: list[LimitQueue]
    breakers: list[BreakerRecord]
    parked: list[Parked]
    overdue: Count
    cost: Cost


def read_overview(database: ReadOnlyDatabase) -> Overview:
    with counted() as cost, database.snapshot() as connection:
        executors = list_executors(connection)
        workers = {one.executor_id: one.worker for one in executors}
        running = fleet_reads.running_attempts(connection, of_oldest=True)[:_SLOWEST]
        return Overview(
            at=dt.datetime.now(dt.UTC),
            runs=count_open(connection),
            executors=executors,
            queues=queue_reads.waiting_by_queue(connection),
            slowest=[{**one, "worker": workers.get(one["executor_id"])} for one in running],
            limits=queue_reads.waiting_at_limits(connection),
            breakers=[one for one in list_breakers(connection) if one.state != "closed"],
            parked=fleet_reads.parked_runs(connection),
            overdue=fleet_reads.overdue(connection),
            cost=cost,
        )


def age_of(found: Overview, attempt: dict[str, Any]) -> float:
    started: dt.datetime = attempt["started_at"]
    return max(0.0, (found.at - started).total_seconds())


# -- the page on a terminal --------------------------------------------------------------------------

_MOVES = {"\x1b[A": -1, "\x1bOA": -1, "k": -1, "\x1b[B": 1, "\x1bOB": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_KEY = re.compile(r"\x1b[\[O][\d;]*[A-Za-z~]|.", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """`header` stays where it is, `body` scrolls."""

    title: str
    header: Sequence[Text]
    body: Sequence[RenderableType]


class FullScreen:
    """Redraws at each interval and key. While the database is unreachable it keeps what it has, and says so."""

    def __init__(self, out: Console, interval: float, read: Callable[[], Page]) -> None:
        self._out, self._interval, self._read = out, interval, read
        self._page = read()
        self._problem, self._is_paused, self._offset = "", False, 0

    def run(self) -> None:
        """Until `q`."""
        due = time.monotonic() + self._interval
        with _keys_at_once(), Live(console=self._out, screen=True, auto_refresh=False) as live:
            while True:
                live.update(self._frame(), refresh=True)
                keys = _keys(max(0.0, due - time.monotonic()))
                if "q" in keys:
                    return
                for key in keys:
                    self._apply(key)
                if time.monotonic() >= due:
                    due = time.monotonic() + self._interval
                    self._read_again()

    def _apply(self, key: str) -> None:
        if key == "p":
            self._is_paused = not self._is_paused
        self._offset = max(0, self._offset + _MOVES.get(key, 0))

    def _read_again(self) -> None:
        if self._is_paused:
            return
        try:
            self._page, self._problem = self._read(), ""
        except DatabaseUnavailable:
            self._problem = "the database is unreachable"

    def _frame(self) -> RenderableType:
        """As high as the terminal: the title, the header, a part of the body, the keys."""
        body = self._out.render_lines(Group(*self._page.body), self._out.options, pad=False)
        room = max(1, self._out.height - len(self._page.header) - 2)
        self._offset = min(self._offset, max(0, len(body) - room))
        shown = body[self._offset : self._offset + room]
        filled = [*shown, *([[]] * (room - len(shown)))]
        lines = [Text.assemble(*((one.text, one.style or "") for one in line if not one.control)) for line in filled]
        frame = [self._title(), *self._page.header, *lines, self._help(len(body) - self._offset - room)]
        for line in frame:
            line.no_wrap, line.overflow = True, "crop"
        return Group(*frame)

    def _title(self) -> Text:
        state = self._problem or ("paused" if self._is_paused else f"every {self._interval:g} s")
        return Text.assemble((self._page.title, "bold"), "  ", (state, "bold red" if self._problem else ""))

    def _help(self, below: int) -> Text:
        more = f"  ({below} more lines)" if below > 0 else ""
        return Text(f"q quit  p {'go on' if self._is_paused else 'pause'}  ↑↓ scroll{more}", style="dim", end="")


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Without waiting for the end of a line, and without printing them; the terminal is as before afterwards."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _keys(seconds: float) -> list[str]:
    """The keys that are pressed within this time, each with its whole sequence. A terminal that is gone counts as q."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return []
    given = os.read(sys.stdin.fileno(), 1024)
    return _KEY.findall(given.decode(errors="ignore")) if given else ["q"]
