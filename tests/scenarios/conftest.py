"""The same scenarios in library mode on SQLite and on a fleet on Postgres. Neither is opened for each scenario:
scenarios do not share runs, and a worker's start costs more than a scenario. A process has one library at a time, so
that it is closed before tests of other modules.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rival_client import Rival, RunResult
from rival_client.settings import Settings
from rival_workers import embedded
from rival_workers.definition.default_registry import default_registry
from rival_workers.dev.stack import Stack, create_database, drop_database
from tests.scenarios import concurrent_flows, other_workflows
from tests.support.workers import Workers, worker_env
from tests.support.zygote import Zygote

WORKFLOWS = ":".join(str(module.__file__) for module in (concurrent_flows, other_workflows))


class Scenario:
    """What a scenario needs: a client, a file for side effects, and the result of a run."""

    def __init__(self, rival: Rival, file: Path) -> None:
        self.rival, self.file = rival, str(file)

    def start(self, workflow: str, input: Any = None) -> str:
        return self.rival.run(workflow, input).run_id

    def end(self, run_id: str) -> RunResult:
        return self.rival.get(self.rival.state(run_id).workflow).get_or_create(run_id).wait(timeout=60)

    def run(self, workflow: str, input: Any = None) -> Any:
        result = self.end(self.start(workflow, input))
        assert result.status == "completed", result.error
        return result.result

    def failure(self, workflow: str, input: Any = None) -> dict[str, Any]:
        result = self.end(self.start(workflow, input))
        assert (result.status, result.error is None) == ("failed", False)
        return dict(result.error or {})


@pytest.fixture(scope="module")
def library() -> Iterator[Rival]:
    with embedded(registry=default_registry) as rival:
        yield rival


@pytest.fixture(scope="session")
def fleet(stack: Stack, template: str, zygote: Zygote) -> Iterator[Rival]:
    name = f"scenarios_{uuid.uuid4().hex[:12]}"
    url = create_database(stack.database_url, name, template=template)
    settings = Settings(database_url=url, broker_url=stack.broker_url, queue=name)
    workers = Workers(worker_env(settings), zygote)
    try:
        workers.start(WORKFLOWS, 2)
        with Rival(settings=settings) as rival:
            yield rival
    finally:
        workers.clean_up()
        drop_database(stack.database_url, name)


@pytest.fixture(params=["library", "fleet"])
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Scenario:
    return Scenario(request.getfixturevalue(request.param), tmp_path / "effects")
