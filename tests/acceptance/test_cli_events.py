"""`rival emit` and `rival events`, as somebody types them who looks why nothing goes on."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from rival_client import Rival
from rival_client.db.tables import events
from tests.acceptance.conftest import Cli


def test_what_was_sent_is_listed_and_counted(shop: Cli) -> None:
    assert shop("emit", "paid", '{"n": 1}', "--key", "k", "--event-id", "e1").out.strip() == "sent e1"
    assert "was sent before" in shop("emit", "paid", "--event-id", "e1").out
    [event] = shop("events", "--topic", "paid", "--json").json
    assert (event["key"], event["status"], event["payload"]) == ("k", "sent", {"n": 1})
    assert shop("events", "--counts", "--json").json == [{"topic": "paid", "sent": 1, "kept": 0, "bound": 10_000}]


def test_a_topic_that_is_full_is_told(shop: Cli) -> None:
    shop("emit", "paid")
    with Rival(shop.env["RIVAL_DATABASE_URL"]) as rival, rival.database.transaction() as connection:
        connection.execute(update(events).values(status="kept", ring_at=None))
    bounded: dict[str, Any] = {"RIVAL_MAX_EVENTS_PER_TOPIC": "1"}
    assert "topic paid keeps 1 of 1 events" in shop("events", "--counts", **bounded).err
    refused = shop("emit", "paid", code=1, **bounded)
    assert "Topic 'paid' keeps 1 events" in refused.err
