"""`install(app)`: a team's own Celery app, started with the team's own command, runs its old tasks and workflows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from rival_client import ConfigurationError, Rival
from rival_client.settings import Settings
from rival_workers import install
from rival_workers.runtime.celery.install import installed_settings
from rival_workers.store.migrations import head
from tests.support.effort import long_but_first
from tests.support.workers import Workers, lines_like, wait_until

#: The settings are those of a team that has its own ideas; none of them may reach Rival's tasks.
PROJECT = """
import os, time
from celery import Celery
from rival_workers import install

app = Celery("proj", broker=os.environ["TEAM_BROKER"])
app.conf.update(
    task_acks_late=True, task_reject_on_worker_lost=True, task_time_limit=2, task_soft_time_limit=1,
    task_default_rate_limit="1/h", task_default_queue=os.environ["TEAM_QUEUE"], task_track_started=True,
    task_serializer="yaml", accept_content=["json", "yaml"], worker_prefetch_multiplier=4,
    task_routes={"*": {"queue": "nowhere"}}, broker_transport_options={"global_keyprefix": os.environ["TEAM_PREFIX"]},
)
before = dict(app.conf)
install(app, workflows="flows", settings={"lease": 2})
assert dict(app.conf) == before

@app.task(rate_limit=None)
def old(file):
    with open(file, "a") as out:
        out.write("old\\n")
"""
FLOW = """
import os, time
def slow(input, run):
    with open(input["file"], "a") as out:
        out.write(f"{os.getpid()} {run.attempt}\\n")
    # Only the first time: whoever takes over need not be waited for.
    if len(open(input["file"]).readlines()) == 1:
        time.sleep(input.get("seconds", 0))
    return os.getpid()
def after(last_step):
    return last_step.result
name = "mixed"
steps = [slow, after]
"""


class Project:
    """A team's project, its workers, and the two kinds of work it can start."""

    def __init__(self, directory: Path, workers: Workers, settings: Settings) -> None:
        self.directory, self._workers, self._settings = directory, workers, settings
        (directory / "proj.py").write_text(PROJECT)
        (directory / "flows").mkdir()
        (directory / "flows" / "mixed.py").write_text(FLOW)
        self.queues = f"{self.queue},{settings.queue}"
        workers.env |= {"TEAM_BROKER": settings.broker_url or "", "TEAM_QUEUE": self.queue}
        workers.env |= {"TEAM_PREFIX": settings.key_prefix, "RIVAL_BROKER_URL": ""}

    @property
    def queue(self) -> str:
        return f"{self._settings.queue}-old"

    def worker(self, pool: str = "threads", queues: str | None = None, **options: Any) -> Any:
        concurrency = [] if pool == "solo" else ["-c", "2"]
        return self._workers.start_celery(
            self.directory, "proj", "-P", pool, "-Q", queues or self.queues, *concurrency, **options
        )

    def send_old_task(self, file: Path) -> None:
        code = f"import proj; proj.old.apply_async(args=[{str(file)!r}], queue={self.queue!r})"
        self.python(code)

    def python(self, code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.directory,
            env=self._workers.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout


@pytest.fixture(params=["", "team-a:"], ids=["no-prefix", "prefix"])
def settings(request: pytest.FixtureRequest, database_url: str, broker_url: str, queue: str) -> Settings:
    return Settings(database_url=database_url, broker_url=broker_url, queue=queue, key_prefix=request.param)


@pytest.fixture
def project(tmp_path: Path, workers: Workers, settings: Settings) -> Iterator[Project]:
    yield Project(tmp_path, workers, settings)
    for worker in workers.all:
        print(worker.log)  # shown when it fails


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("prefork", "threads", "solo"))
@pytest.mark.parametrize("settings", ["team-a:"], indirect=True)
def test_an_old_task_and_a_workflow_run_on_the_same_worker(
    project: Project, rival: Rival, tmp_path: Path, pool: str
) -> None:
    worker = project.worker(pool)
    project.send_old_task(tmp_path / "old.txt")
    # Longer than the team's time limits, which are for the team's tasks.
    rival.run("mixed", {"file": str(tmp_path / "new.txt"), "seconds": 2.5}, "one")
    result = rival.wait("mixed", "one", timeout=20)
    wait_until(lambda: lines(tmp_path / "old.txt") == ["old"], what="the old task")
    assert result.status == "completed"
    family = {worker.pid, *(child.pid for child in worker.children())}
    assert result.result in family
    assert len(lines(tmp_path / "new.txt")) == 1
    assert worker.terminate() == 0


@pytest.mark.slow
def test_a_run_starts_at_once_and_not_at_the_keepers_pace(project: Project, rival: Rival, tmp_path: Path) -> None:
    """Producer and worker publish where the worker listens, with any key prefix of the team."""
    project.worker()
    for n in range(3):
        rival.run("mixed", {"file": str(tmp_path / "new.txt")}, f"run-{n}")
        # The keeper would come after ten seconds.
        assert rival.wait("mixed", f"run-{n}", timeout=5).status == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("pool", long_but_first("prefork", "threads"))
@pytest.mark.parametrize("settings", ["team-a:"], indirect=True)
def test_a_killed_workers_attempt_is_taken_over_by_another(
    project: Project, rival: Rival, tmp_path: Path, pool: str
) -> None:
    first = project.worker(pool)
    file = tmp_path / "new.txt"
    rival.run("mixed", {"file": str(file), "seconds": 30}, "one")
    wait_until(lambda: lines(file), what="the step has begun")
    second = project.worker(pool)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(first.pid, signal.SIGKILL)
    result = rival.wait("mixed", "one", timeout=30)
    assert result.result in {second.pid, *(child.pid for child in second.children())}
    [step] = [step for step in rival.state("one").steps if step.path == "slow"]
    assert (step.attempts, step.lost) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["team-a:"], indirect=True)
def test_a_stopping_worker_lets_its_attempt_end(project: Project, rival: Rival, tmp_path: Path) -> None:
    worker = project.worker("prefork")
    file = tmp_path / "new.txt"
    rival.run("mixed", {"file": str(file), "seconds": 2}, "one")
    wait_until(lambda: lines(file), what="the step has begun")
    assert worker.terminate() == 0
    steps = {step.path: step.status for step in rival.state("one").steps}
    # Nothing new is begun in place by a worker that leaves.
    assert steps == {"slow": "completed", "after": "pending"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [""], indirect=True)
def test_a_worker_that_does_not_listen_to_the_queue_takes_no_part(project: Project, rival: Rival) -> None:
    queue = rival.settings.queue
    says = f"…this worker does not listen to queue '{queue}': it runs no workflows"
    project.worker(queues=project.queue, says=says)
    assert rival.workflows() == []
    assert rival.database.is_postgres
    with rival.database.autocommit() as connection:
        assert list(connection.exec_driver_sql("SELECT * FROM rival_executors")) == []


@pytest.mark.parametrize("settings", [""], indirect=True)
def test_what_is_wrong_ends_the_worker_with_one_clear_line(project: Project, empty_database: str) -> None:
    assert project_refuses(project, RIVAL_DATABASE_URL=empty_database) == [
        f"rival: The database's schema is at nothing, this worker needs {head()}. "
        "Run `rival db upgrade` (it is safe while workers run)."
    ]
    file = project.directory / "flows" / "mixed.py"
    file.write_text("steps = [nix]")
    assert project_refuses(project) == [
        f"rival: flows/mixed.py: cannot be imported: NameError: name 'nix' is not defined ({file}:1)"
    ]


def project_refuses(project: Project, **env: str) -> list[str]:
    """What a worker that ends at once says of Rival."""
    project._workers.env |= env
    with pytest.raises(AssertionError, match=r"^worker \w+ ended:") as refused:
        project.worker("solo")
    return lines_like(str(refused.value), "rival: …")


@pytest.fixture
def empty_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'empty.db'}"


@pytest.mark.parametrize("settings", [""], indirect=True)
def test_a_producer_that_imports_the_app_loads_no_workflows_and_opens_nothing(project: Project) -> None:
    code = """
import json, sys, proj
loaded = [name for name in sys.modules if name.startswith(("rival_workflow", "rival_workers.store", "alembic"))]
print(json.dumps([loaded, sorted(name for name in proj.app.tasks if "rival" in name)]))
"""
    assert json.loads(project.python(code)) == [[], []]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"leese": 5}, "unknown setting 'leese'"), ({"broker_url": "redis://x"}, "the Celery app's own")],
)
def test_a_setting_that_is_none_is_refused_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        install(Celery("x", set_as_current=False), settings=given)


def test_an_app_without_a_broker_has_settings_for_commands_that_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RIVAL_BROKER_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    app = Celery("reads", set_as_current=False)
    install(app, workflows="workflows")
    found = installed_settings(app)
    assert found is not None
    assert found.broker_url is None
    monkeypatch.setenv("RIVAL_BROKER_URL", "redis://own/0")
    found = installed_settings(app)
    assert found is not None
    assert found.broker_url == "redis://own/0"
