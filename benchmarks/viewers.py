"""Rival alone: what a dashboard costs a busy fleet while people look at it. With and without it in turns."""

from __future__ import annotations

import http.client
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.disciplines import Warm, Work, steps_per_s
from benchmarks.fleet import Fleet, wait_until
from benchmarks.lines import emit, progress
from benchmarks.loads import Load

VIEWERS = 20
LIMIT_S = 30.0
#: What the page of all runs looks at.
LOOKS_AT = urlencode({"counts": "true", "fleet": "true", "list": "workflow=noop-5"})


def measure_viewers(warm: Warm, env: Mapping[str, str], load: Load, log: Path) -> None:
    """Steps per second of a fleet that has a dashboard with viewers beside it, and of the same fleet without."""
    work = Work("noop", load.runs, load.steps)
    rates: dict[str, list[float]] = {"none": [], "20": []}
    with dashboard(env, log) as board:
        for number in range(load.rounds):
            rates["none"].append(steps_per_s(warm, work))
            with board.released():
                rates["20"].append(steps_per_s(warm, work))
            progress(warm.system.name, f"steps/s, round {number + 1}: {rates['none'][-1]:.0f}, {rates['20'][-1]:.0f}")
    for viewers, values in rates.items():
        emit(warm.system.name, f"steps_per_s_beside_viewers/{viewers}", values)
    cost = 1 - statistics.median(rates["20"]) / statistics.median(rates["none"])
    emit(warm.system.name, "viewers_cost_percent", [cost * 100])


@contextmanager
def dashboard(env: Mapping[str, str], log: Path) -> Iterator[Fleet]:
    """A dashboard with its viewers, held until it is released."""
    rival, port = str(Path(sys.executable).with_name("rival")), _free_port()
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [rival, "dashboard", "token", "bench", "--directory", folder], capture_output=True, text=True, check=True
        )
        command = [rival, "dashboard", "--port", str(port), "--read-only", "--directory", folder]
        with Fleet([command], env, log) as board:
            wait_until(lambda: _listens(port), LIMIT_S, "a dashboard")
            viewers = [_open_stream(port, made.stdout.strip()) for _ in range(VIEWERS)]
            for one in viewers:
                threading.Thread(target=_look, args=[one], daemon=True).start()
            time.sleep(1.0)
            board.hold()
            yield board


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _open_stream(port: int, token: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    connection.request("GET", f"/api/v1/stream?{LOOKS_AT}", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"the dashboard refused a viewer: {answer.status} {answer.read(500)!r}")
    return answer


def _look(stream: http.client.HTTPResponse) -> None:
    with suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
        while stream.read1(65_536):
            pass
