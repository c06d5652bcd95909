"""Each example runs as its README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rival_client import Rival
from tests.support.documents import Page
from tests.support.workers import ROOT, Workers, wait_until

EXAMPLES = ROOT / "examples"


def python(*command: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_an_existing_celery_project_runs_old_tasks_and_workflows_on_one_worker(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    directory, outbox, settings = EXAMPLES / "celery_project", tmp_path / "outbox.txt", rival.settings
    broker, old_queue = settings.broker_url or "", f"{settings.queue}-old"
    workers.env |= {"CELERY_BROKER_URL": broker, "SHOP_OUTBOX": str(outbox), "SHOP_QUEUE": old_queue}
    worker = workers.start_celery(directory, "shop.celery", "-P", "threads", "-Q", f"{old_queue},{settings.queue}")
    assert "paid-42" in python("place_order.py", "42", cwd=directory, env=workers.env)
    wait_until(lambda: outbox.exists() and "customer-42" in outbox.read_text(), what="the old task")
    assert worker.terminate() == 0


def test_the_how_to_shows_the_lines_of_the_celery_project() -> None:
    page = Page(ROOT / "docs" / "how-to" / "existing-celery-project.md")
    [block] = [block for block in page.blocks() if block.language == "python"]
    source = (EXAMPLES / "celery_project" / "shop" / "celery.py").read_text().replace("  # noqa: E402", "")
    assert block.text in source
