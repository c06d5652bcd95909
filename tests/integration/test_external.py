"""External steps and heartbeats on a real fleet: a completion is accepted, a step without heartbeats times out."""

from __future__ import annotations

from pathlib import Path

from rival_client import Rival
from tests.support.workers import Workers, wait_until

WORKFLOW = """
import time
from rival_workers import step

def note(run, what):
    with open(NOTES, "a") as file:
        file.write(f"{run.run_id} {what}\\n")

def ask(ctx, run):
    note(run, ctx.completion_token)

def silent(ctx, run):
    if run.attempt == 1:
        ctx.heartbeat(progress={"page": 3})
        time.sleep(2)
    return ctx.last_progress

steps = [
    step(ask, execution_mode="external", deadline=2, on_timeout="retry", max_attempts=2, backoff="none"),
    step(silent, heartbeat=1, on_timeout="retry", max_attempts=2, backoff="none"),
]
"""


def test_a_fleet_accepts_answers_of_external_systems_and_notices_missed_heartbeats(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    file, notes = tmp_path / "order.py", tmp_path / "notes"
    file.write_text(f"NOTES = {str(notes)!r}\n{WORKFLOW}")
    notes.touch()
    workers.start(file)
    rival.run("order", run_id="r")

    def tokens() -> list[str]:
        return [line.split()[1] for line in notes.read_text().splitlines()]

    wait_until(lambda: len(tokens()) == 2, what="its deadline has passed, and it was begun anew")
    assert not rival.complete_step(tokens()[0], "old")
    assert rival.complete_step(tokens()[1], "new")
    result = rival.wait("order", "r", timeout=20)
    assert result.results == {"ask": "new", "silent": {"page": 3}}
    outcomes = [(one.path, one.outcome, (one.error or {}).get("type")) for one in rival.state("r").attempts]
    assert outcomes == [
        ("ask", "timed_out", "StepTimeout"),
        ("ask", "completed", None),
        ("silent", "timed_out", "HeartbeatMissed"),
        ("silent", "completed", None),
    ]
    whats = [entry.what for entry in rival.history("r")]
    assert "late_answer_refused" in whats
    assert "completed_externally" in whats
