"""`rival emit` and `rival events`, as an operator types them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from rival_client import Rival
from rival_client.db.event_tables import events
from tests.acceptance.conftest import Cli


def test_what_was_sent_is_listed_and_counted(shop: Cli) -> None:
    shop("events").prints("no events")
    shop("events", "--counts").prints("no events")
    shop("emit", "paid", '{"n": 1}', "--key", "k", "--event-id", "e1").prints("sent e1")
    shop("emit", "paid", "--key", "k", "--event-id", "e1").prints("e1 was sent before")
    shop("emit", "paid", "--key", "k", "--event-id", "e1", "--json").prints_json(
        {"event_id": "e1", "status": "duplicate"}
    )
    shop("emit", "paid", "--event-id", "e1", code=1).complains(
        "rival: Event 'e1' exists already, with another topic, key or run: this one, of topic 'paid', was not sent. "
        "Ids of events are unique in all topics: put the topic in front of an id from elsewhere, as in "
        'event_id=f"{topic}:{order_id}".'
    )
    shop("events", "--topic", "paid").prints(
        """
        event  topic  key  status  sent  payload
        e1  paid  k  sent  <time>  {"n": 1}
        """
    )
    event: dict[str, Any] = {"event_id": "e1", "topic": "paid", "key": "k", "run_id": None, "payload": {"n": 1}}
    event |= {"delivery": "one", "status": "sent", "created_at": "<time>", "expires_at": "<time>"}
    shop("events", "--topic", "paid", "--json").prints_json([event])
    shop("events", "--counts", "--json").prints_json([{"topic": "paid", "sent": 1, "kept": 0, "bound": 10_000}])


def test_a_topic_that_is_full_is_reported(shop: Cli) -> None:
    shop("emit", "paid")
    with Rival(shop.env["RIVAL_DATABASE_URL"]) as rival, rival.database.transaction() as connection:
        connection.execute(update(events).values(status="kept", ring_at=None))
    bounded: dict[str, Any] = {"RIVAL_MAX_EVENTS_PER_TOPIC": "1"}
    counted = shop("events", "--counts", **bounded)
    counted.stdout_is(
        """
        topic  undelivered  kept  limit
        paid  0  1  1
        """
    )
    counted.stderr_is("topic paid keeps 1 of at most 1 events: when it is full, events are refused")
    shop("emit", "paid", code=1, **bounded).complains(
        "rival: Topic 'paid' keeps 1 events that no run has received: this one was not sent. Start what waits for "
        "them, send with a shorter `expires`, or raise RIVAL_MAX_EVENTS_PER_TOPIC (0: no bound). `rival events "
        "--topic paid` lists them."
    )
