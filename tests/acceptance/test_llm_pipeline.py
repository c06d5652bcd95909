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
from tests.support.threads import join_all
from tests.support.workers import ROOT

EXAMPLE = ROOT / "examples" / "llm_pipeline"
CUT, NONSENSE = -1, -2
WRITER = ["writer", "writer"]


class Provider:
    """A fake API. `answers`: model -> status codes, one after the other; the last one stays. `CUT`: it closes the
    connection without an answer. `NONSENSE`: its answer is not JSON."""

    def __init__(self) -> None:
        self.answers: dict[str, list[int]] = {}
        self.calls: list[str] = []
        self.retry_after: str | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = provider.answer(asked["model"])
                if status == CUT:
                    self.close_connection = True
                    return
                answer = json.dumps({"text": f"{asked['model']}: {asked['prompt']}"})
                body = b"<html>oops" if status == NONSENSE else answer.encode()
                self.send_response(200 if status == NONSENSE else status)
                if provider.retry_after is not None:
                    self.send_header("Retry-After", provider.retry_after)
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
    join_all([thread])


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        lab.register(EXAMPLE)
        yield lab


def ticket(lab: Lab, number: int = 0) -> Any:
    return lab.run("answer-ticket", {"text": f"ticket {number}", "tenant": "acme"})


def test_the_big_model_answers_after_a_retry(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [429, 200]
    assert ticket(lab).result["answer"] == "writer: Dear customer, about your ticket: big: ticket 0"
    assert provider.calls == ["big", "big", *WRITER]


def test_the_small_model_answers_when_the_big_one_stays_away(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [503]
    assert ticket(lab).result["answer"] == "writer: Dear customer, about your ticket: small: ticket 0"
    assert provider.calls == ["big", "big", "big", "small", *WRITER]


def test_a_prompt_that_is_refused_is_not_retried(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [400]
    ticket(lab)
    assert provider.calls == ["big", "small", *WRITER]


def test_the_breaker_leaves_the_big_model_alone_and_lets_one_ticket_probe(lab: Lab, provider: Provider) -> None:
    provider.answers["big"] = [503]
    for number in range(6):
        assert ticket(lab, number).status == "completed"
    assert provider.calls.count("big") == 10
    assert provider.calls.count("small") == 6
    provider.answers["big"] = [200]
    lab.advance(31)
    assert ticket(lab, 7).result["answer"] == "writer: Dear customer, about your ticket: big: ticket 7"
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


@pytest.mark.parametrize("broken", [CUT, NONSENSE, 500, 529])
def test_an_answer_that_cannot_be_used_is_asked_for_again(lab: Lab, provider: Provider, broken: int) -> None:
    provider.answers["big"] = [broken, 200]
    assert ticket(lab).status == "completed"
    assert provider.calls == ["big", "big", *WRITER]


def test_the_provider_is_left_alone_for_as_long_as_it_says(lab: Lab, provider: Provider) -> None:
    provider.answers["big"], provider.retry_after = [429, 200], "20"
    began = lab.now
    assert ticket(lab).status == "completed"
    assert 20 <= (lab.now - began).total_seconds() < 25


def test_all_steps_of_a_run_share_its_retry_budget(lab: Lab, provider: Provider) -> None:
    provider.answers |= {"big": [503, 503, 200], "writer": [503, 503, 200, 503, 503, 200]}
    failed = ticket(lab)
    assert (failed.status, failed.failed_step, failed.error["type"]) == (
        "failed",
        "answer[1]/draft",
        "RetryBudgetSpent",
    )
    assert provider.calls.count("writer") == 5
    [letter] = lab.rival.dead_letters()
    lab.rival.redrive([letter.run_id])
    assert lab.get(letter.run_id).finish().result["drafts"] == 2


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
