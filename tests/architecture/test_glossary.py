"""The glossary has the terms of the code, and no others."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.support.documents import Page
from tests.support.workers import ROOT

#: Terms that the code uses in a meaning of its own. A new one belongs here and into the glossary.
TERMS = (
    "attempt",
    "callback",
    "checkpoint",
    "child",
    "circuit breaker",
    "claim",
    "compensation",
    "completion token",
    "composite",
    "continuation",
    "dead letter",
    "doorbell",
    "effect",
    "epoch",
    "event",
    "executor",
    "external step",
    "failpoint",
    "fallback",
    "fast path",
    "fleet",
    "flow",
    "gate",
    "gathered",
    "grace",
    "granted",
    "group commit",
    "guard",
    "handed back",
    "handler",
    "heartbeat",
    "history",
    "hook",
    "idempotency key",
    "in hand",
    "inline",
    "item",
    "iteration",
    "join",
    "keeper",
    "kept",
    "lab",
    "label",
    "lane",
    "lease",
    "library mode",
    "limit",
    "lost",
    "missed",
    "near",
    "node",
    "operator",
    "orphan",
    "outcome",
    "parked",
    "path",
    "paused",
    "place",
    "plan",
    "policy",
    "predefined step",
    "preset",
    "producer",
    "replay",
    "retry (of a run)",
    "rewind",
    "route",
    "rule",
    "rulebook",
    "run",
    "run-end notification",
    "schedule",
    "settle",
    "shard",
    "singleton",
    "slot",
    "stale",
    "step",
    "suspended",
    "sweep",
    "takeover",
    "tick",
    "ticket",
    "token",
    "topic",
    "transition",
    "veil",
    "version",
    "worker",
    "workflow",
)
#: Written otherwise in code: the term -> what to look for.
IN_CODE = {
    "retry (of a run)": "retry_run",
    "run-end notification": r"run.end",
    "takeover": r"take.?over|taken.over",
    "policy": "policies",
    "external step": r"external.steps?",
    "iteration": "iterations?",
    "library mode": "library mode",
    "predefined step": "predefined",
}


def glossary() -> dict[str, str]:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", Page(ROOT / "docs" / "glossary.md").text, re.MULTILINE)
    return {term: meaning for term, meaning in rows if term not in ("term", "---")}


@cache
def code() -> str:
    packages = (ROOT / "rival_client", ROOT / "rival_workers")
    return "\n".join(path.read_text().lower() for package in packages for path in sorted(package.rglob("*.py")))


def test_every_term_of_the_code_is_in_the_glossary_and_no_other() -> None:
    assert sorted(glossary()) == sorted(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_glossary_occurs_in_the_code(term: str) -> None:
    wanted = IN_CODE.get(term, re.escape(term).replace(r"\ ", "[ _]"))
    assert re.search(rf"(?<![a-z])(?:{wanted})", code()), f"nothing in the code is called {term!r}: remove it"


@pytest.mark.parametrize("term", TERMS)
def test_a_term_has_one_row(term: str) -> None:
    text = Page(ROOT / "docs" / "glossary.md").text
    assert len(re.findall(rf"^\| {re.escape(term)} \|", text, re.MULTILINE)) == 1
