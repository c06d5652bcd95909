"""The example `llm_pipeline` against a provider that misbehaves, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rival_client import DeadLetterFilter
from rival_workers.testing import Lab
from tests.support.workers import ROOT

EXAMPLE = ROOT / "examples" / "llm_pipeline"


class Provider:
    """A fake API. `answers`: model -> status codes, one after the other; the last one stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[int]] = {}
        self.calls: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = provider.answer(asked["model"])
                body = json.dumps({"text": f"{asked['model']}: {asked['prompt']}"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def answer(self, model: str) -> int:
        self.calls.append(model)
        codes = self.answers.get(model, [200])
        return codes.pop(0) if len(codes) > 1 else codes[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    fake = Provider()
    thread = threading.Thread(target=fake.server.serve_forever)
    thread.start()
    monkeypatch.setenv("LLM_PROVIDER_URL", fake.url)
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join(10)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        lab.register(EXAMPLE)
        yield lab


def ticket(lab: Lab, number: int = 0) -> Any:
    return lab.run("answer-ticket", {"text": f"ticket {number}", "tenant": "acme"})


def test_the_big_model_answers_after_a_retry(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [429, 200]
    assert ticket(lab).result["answer"] == "Dear customer, about your ticket: big: ticket 0"
    assert provider.calls == ["big", "big"]


def test_the_small_model_answers_when_the_big_one_stays_away(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [503]
    assert ticket(lab).result["answer"] == "Dear customer, about your ticket: small: ticket 0"
    assert provider.calls == ["big", "big", "big", "small"]


def test_a_prompt_that_is_refused_is_not_retried(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [400]
    ticket(lab)
    assert provider.calls == ["big", "small"]


def test_the_breaker_leaves_the_big_model_alone_and_lets_one_ticket_probe(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [503]
    for number in range(6):
        assert ticket(lab, number).status == "completed"
    assert provider.calls.count("big") == 10
    assert provider.calls.count("small") == 6
    provider.answers["big"] = [200]
    lab.advance(31)
    assert ticket(lab, 7).result["answer"] == "Dear customer, about your ticket: big: ticket 7"
    assert [one.state for one in lab.rival.breakers()] == ["closed"]


def test_a_ticket_that_no_model_answers_is_a_dead_letter_and_can_be_redriven(lab: Lab, provider: Provider) -> None:
    provider.answers |= {"big": [503], "small": [503]}
    failed = ticket(lab)
    assert (failed.status, failed.failed_step) == ("failed", "summarise")
    [letter] = lab.rival.dead_letters(DeadLetterFilter(workflow="answer-ticket"))
    assert (letter.path, letter.error_type) == ("summarise", "Overloaded")
    provider.answers.clear()
    assert lab.rival.redrive([letter.run_id]).done == (letter.run_id,)
    assert lab.get(letter.run_id).finish().status == "completed"
    assert lab.rival.dead_letters() == []


def test_a_tenant_is_slowed_down_to_its_rate(lab: Lab, provider: Provider) -> None:
    began = lab.now
    tickets = [
        lab.start("answer-ticket", {"text": f"ticket {number}", "tenant": "acme"}, run_id=f"t{number}")
        for number in range(60)
    ]
    for one in tickets:
        one.finish()
    assert provider.calls.count("big") == 60
    assert (lab.now - began).total_seconds() >= 2
