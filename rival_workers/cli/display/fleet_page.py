"""The fleet as a page for a terminal."""

from __future__ import annotations

import datetime as dt
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from rival_client.model.breakers import BreakerRecord
from rival_client.model.queues import DEFAULT_QUEUE
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.executors import ExecutorRecord
from rival_client.sql.reads.fleet_reads import Parked
from rival_client.sql.reads.queue_reads import LimitQueue, QueueBacklog
from rival_workers.cli.display.formats import one_line, seconds_text
from rival_workers.cli.display.full_screen import Page
from rival_workers.cli.display.output import table
from rival_workers.cli.fleet_snapshot import Overview, age_of


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
    return name, _number(one.waiting), _since(one.oldest, found), f"{serve} executors"


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
