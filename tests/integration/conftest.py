"""A module's own database and queue, shared by its tests: a worker's start costs more than a test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from rival_client.settings import Settings
from rival_workers.dev.stack import Stack, create_database, drop_database
from tests.support.workers import Workers, worker_env
from tests.support.zygote import Zygote


@pytest.fixture(scope="module")
def own(stack: Stack, template: str) -> Iterator[Settings]:
    name = f"own_{uuid.uuid4().hex[:12]}"
    url = create_database(stack.database_url, name, template=template)
    yield Settings(database_url=url, broker_url=stack.broker_url, queue=name)
    drop_database(stack.database_url, name)


@pytest.fixture(scope="module")
def own_workers(own: Settings, zygote: Zygote) -> Iterator[Workers]:
    workers = Workers(worker_env(own), zygote)
    yield workers
    workers.clean_up()
