"""Each example runs as its README says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from rival_client import Rival, RunResult
from rival_workers import embedded
from rival_workers.definition.files import register_workflows_from_directory
from rival_workers.definition.registry import Registry
from rival_workers.testing import Lab
from tests.support.documents import Page
from tests.support.workers import ROOT, Workers, wait_until

EXAMPLES = ROOT / "examples"


def python(*command: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def result_of(example: str, workflow: str, *inputs: Any) -> list[RunResult]:
    """In library mode: the same engine, in this process."""
    registry = Registry()
    register_workflows_from_directory(EXAMPLES / example, registry)
    with embedded(registry=registry, concurrency=8) as rival:
        started = [rival.run(workflow, one) for one in inputs]
        return [rival.wait(workflow, one.run_id, timeout=60) for one in started]


# -- workflows --------------------------------------------------------------------------------------------


def test_an_order_is_paid_and_shipped_or_waits_for_stock_or_fails_with_its_payment() -> None:
    shipped, waiting, refused = result_of(
        "order_fulfilment",
        "order",
        {"customer": "ada", "lines": {"axe": 2, "gloves": 1}},
        {"customer": "ada", "lines": {"rope": 1}},
        {"customer": "mallory", "lines": {"axe": 1}},
    )
    assert shipped.result["book_carrier"] == {"parcel": "parcel of axe, gloves"}
    assert shipped.result["write_invoice"]["invoice"].startswith("95 €, pay-")
    assert waiting.result == {"waiting": ["rope"]}
    assert (refused.status, refused.failed_step) == ("failed", "in-stock?/payment/authorise")


def test_an_order_that_no_carrier_takes_is_undone() -> None:
    with Lab() as lab:
        lab.register(EXAMPLES / "order_fulfilment")
        state = lab.run("order", {"customer": "ada", "lines": {"axe": 6}}).state
    undone = sorted((step.completed_at, step.result) for step in state.steps if step.kind == "compensation")
    assert (state.status, state.failed_step) == ("failed", "in-stock?/send/book_carrier")
    assert [result for _, result in undone] == [{"back on the shelf": ["axe"]}, {"refund": 240}]


def test_an_llm_pipeline_falls_back_to_the_small_model_when_the_big_one_stays_away() -> None:
    by_big, by_small = result_of(
        "llm_pipeline", "answer-ticket", {"text": "My parcel is late."}, {"text": "There is an outage."}
    )
    assert by_big.result == {
        "answer": "[writer] Dear customer, about your ticket: [big] My parcel is late.",
        "drafts": 2,
    }
    assert by_small.result["answer"] == "[writer] Dear customer, about your ticket: [small] There is an outage"
    assert (by_big.status, by_small.status) == ("completed", "completed")


def test_an_expense_waits_for_its_decision_until_the_deadline_and_no_longer() -> None:
    with Lab() as lab:
        lab.register(EXAMPLES / "approval")
        small = lab.run("expense", {"number": "e-1", "amount": 20})
        decided = lab.start("expense", {"number": "e-2", "amount": 120})
        lab.advance(24 * 3600)
        lab.send_event("expense.decided", {"approved": True, "by": "Ann"}, key="e-2")
        late = lab.run("expense", {"number": "e-3", "amount": 120})
        decided.finish()
        results = [run.result for run in (small, decided, late)]
        lasted = late.seconds
    assert results == [
        {"paid": 20, "because": "small"},
        {"paid": 120, "because": {"approved": True, "by": "Ann"}},
        {"paid": 0, "because": {"approved": False, "by": None, "boss": "notified"}},
    ]
    assert lasted == 2 * 24 * 3600


@pytest.mark.slow
def test_a_nightly_etl_loads_a_thousand_accounts_and_counts_those_it_could_not(rival: Rival, workers: Workers) -> None:
    workers.start(EXAMPLES / "nightly_etl", 2, concurrency=8)
    rival.run("nightly-etl", {"day": "2026-01-31"}, "etl-2026-01-31")
    ended = rival.wait("nightly-etl", "etl-2026-01-31", timeout=90)
    assert ended.result == {"loaded": 990, "failed": 10, "cents": sum(3 * n for n in range(1000) if n % 100 != 99)}
    assert rival.state("etl-2026-01-31", fold=10).folded == {"accounts": {"completed": 990, "failed": 10}}


# -- producers --------------------------------------------------------------------------------------------


@pytest.fixture
def servers(rival: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own servers, as a producer finds them."""
    for name, value in (
        ("database_url", rival.settings.database_url),
        ("broker_url", rival.settings.broker_url),
        ("queue", rival.settings.queue),
    ):
        monkeypatch.setenv(f"RIVAL_{name.upper()}", value or "")


def load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # FastAPI looks the annotations up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.usefixtures("servers")
def test_a_fastapi_app_starts_an_order_once_and_reports_how_it_ended(workers: Workers) -> None:
    workers.start(EXAMPLES / "order_fulfilment")
    order, key = {"customer": "ada", "lines": {"axe": 1}}, {"Idempotency-Key": "42"}
    with TestClient(load(EXAMPLES / "fastapi_producer" / "web.py").app) as web:
        assert web.post("/orders", json=order, headers=key).json() == {"id": "order-42", "status": "started"}
        assert web.post("/orders", json=order, headers=key).json()["status"] == "running"
        assert web.post("/orders", json=order | {"customer": "bob"}, headers=key).status_code == 409
        assert web.post("/orders", json={"customer": "ada"}).status_code == 422
        ended = web.get("/orders/order-42/result?timeout=20").json()
        assert (ended["status"], ended["error"]) == ("completed", None)
        assert web.get("/orders/order-42").json() == {"id": "order-42", "status": "completed", "step": None}
        assert web.get("/orders/nix").status_code == 404
        assert web.delete("/orders/order-42").json() == {"cancelled": False}


DJANGO = """
import json, django
django.setup()
from django.core.management import call_command
from django.test import Client
from shop.models import Order
from shop.rival import rival
call_command("migrate", verbosity=0)
web = Client(raise_request_exception=False)

def post(path, **value):
    return web.post(path, json.dumps(value), content_type="application/json")

first = post("/orders", customer="ada", total=40).json()["run"]
gift = post("/newsletters", customer="ada").json()["run"]
refused = post("/orders", customer="bob", total=-1).status_code
ended = [rival().wait("ship-order", one, 20).result for one in (first, gift)]
shown = web.get(f"/runs/{first}").json()
left = [Order.objects.count(), len(rival().runs(workflow="ship-order"))]

from django.db import connection, transaction
with transaction.atomic():
    again = rival().run("ship-order", {"order": 1, "total": 40}, first, connection=connection.connection).status
print(json.dumps([first, ended, refused, shown, left, again, web.get("/runs/nix").status_code]))
"""


@pytest.mark.slow
def test_a_django_view_keeps_an_order_and_its_run_both_or_neither(rival: Rival, workers: Workers) -> None:
    directory = EXAMPLES / "django_producer"
    workers.start(directory / "workflows")
    env = workers.env | {"DJANGO_SETTINGS_MODULE": "shop.settings", "DATABASE_URL": rival.settings.database_url or ""}
    first, ended, refused, shown, left, again, missing = json.loads(python("-c", DJANGO, cwd=directory, env=env))
    assert (first, ended) == ("order-1", [{"shipped": 1}, {"shipped": 1}])
    assert shown == {"status": "completed", "step": None, "result": {"shipped": 1}}
    # The refused order is not there, and nor is its run.
    assert (refused, left, missing) == (500, [1, 2], 404)
    assert again == "running"


@pytest.mark.slow
def test_an_existing_celery_project_runs_old_tasks_and_workflows_on_one_worker(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    directory, outbox, settings = EXAMPLES / "celery_project", tmp_path / "outbox.txt", rival.settings
    broker, old_queue = settings.broker_url or "", f"{settings.queue}-old"
    workers.env |= {"CELERY_BROKER_URL": broker, "SHOP_OUTBOX": str(outbox), "SHOP_QUEUE": old_queue}
    worker = workers.start_celery(directory, "shop.celery", "-P", "threads", "-Q", f"{old_queue},{settings.queue}")
    placed = python("place_order.py", "42", cwd=directory, env=workers.env)
    assert placed == "{'order': 42, 'payment': 'paid-42'}\n"
    wait_until(lambda: outbox.exists() and "customer-42" in outbox.read_text(), what="the old task")
    assert worker.terminate() == 0


def test_the_how_to_shows_the_lines_of_the_celery_project() -> None:
    page = Page(ROOT / "docs" / "how-to" / "existing-celery-project.md")
    [block] = [block for block in page.blocks() if block.language == "python"]
    source = (EXAMPLES / "celery_project" / "shop" / "celery.py").read_text().replace("  # noqa: E402", "")
    assert block.text in source
