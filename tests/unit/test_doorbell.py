"""Published messages are Celery messages: equal to those that Celery sends, and decoded by Celery's own code."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from typing import Any

import pytest
from celery import Celery
from celery.worker.request import Request
from celery.worker.state import requests
from kombu.message import Message
from kombu.transport.virtual import Channel
from kombu.transport.virtual import Message as VirtualMessage

from rival_client.broker.celery_format import celery_body, celery_headers, redis_envelope
from rival_client.broker.doorbell import SilentDoorbell, open_doorbell
from rival_client.broker.message import StepMessage, attempt_id, step_label
from rival_client.broker.outages import Cooldown
from rival_client.broker.redis_connection import is_redis
from rival_workers.runtime.celery.app import Tasks, make_app
from rival_workers.settings import WorkerSettings

START = StepMessage("order-1", None, 0, "order", "abc")
ATTEMPT = StepMessage("order-1", "charge", 3, "order", "abc", attempt=2, countdown=1.5)
RINGS = [START, ATTEMPT, StepMessage("order-1", "charge!on_error", 0, "order", "abc", lost=1)]


@pytest.fixture
def app() -> Celery:
    app = make_app(WorkerSettings(broker_url="memory://"))
    Tasks(app)
    return app


class _Channel(Channel):
    """Only what decoding a message needs."""

    def __init__(self) -> None:
        self.body_encoding = "base64"
        self.connection = None
        self.codecs = dict(Channel.codecs)
        self.closed = True


def as_celery_reads_it(app: Celery, sent: StepMessage) -> tuple[VirtualMessage, Request]:
    payload = json.loads(redis_envelope(sent, "rival"))
    message = VirtualMessage(payload, channel=_Channel(), accept={"application/json"})
    request = Request(message, app=app, headers=message.headers, decoded=False, task=app.tasks[sent.task])
    return message, request


def test_the_broker_of_the_settings_replaces_that_of_celerys_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, "redis://other/0")
    app = make_app(WorkerSettings(broker_url="memory://own"))
    with app.connection_for_read() as reading, app.connection_for_write() as writing, app.pool.acquire() as pooled:
        assert [one.hostname for one in (reading, writing, pooled)] == ["own"] * 3


@pytest.mark.parametrize("sent", RINGS, ids=lambda sent: sent.task_id)
def test_celery_decodes_a_message_to_its_task_id_and_arguments(app: Celery, sent: StepMessage) -> None:
    message, request = as_celery_reads_it(app, sent)
    assert request.task.name == sent.task
    assert (request.name, request.id, request.content_type) == (
        sent.label,
        sent.task_id,
        "application/json",
    )
    args, kwargs, embed = message.decode()
    assert (args, kwargs) == (sent.args, {})
    assert embed == {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    assert request.root_id == "order-1"
    assert request.ignore_result
    assert sent.task_id not in requests


@pytest.mark.parametrize("sent", RINGS, ids=lambda sent: sent.task_id)
def test_a_message_has_the_headers_and_the_body_that_celerys_own_message_has(app: Celery, sent: StepMessage) -> None:
    own = app.amqp.as_task_v2(
        sent.task_id,
        sent.task,
        args=sent.args,
        countdown=sent.countdown or None,
        shadow=sent.label,
        argsrepr=celery_headers(sent)["argsrepr"],
        root_id=sent.run_id,
        parent_id=None if sent.path is None else sent.run_id,
        retries=sent.attempt - 1,
        ignore_result=True,
    )
    ours = celery_headers(sent)
    volatile = {"origin", "eta"}
    assert set(own.headers) <= set(ours)
    shared = {key for key in own.headers if key not in volatile}
    assert {key: ours[key] for key in shared} == {key: own.headers[key] for key in shared}
    assert json.loads(json.dumps(celery_body(sent))) == json.loads(json.dumps(own.body))


def test_a_countdown_is_an_eta_that_celery_waits_for(app: Celery) -> None:
    _, request = as_celery_reads_it(app, ATTEMPT)
    left = (request.eta - dt.datetime.now(dt.UTC)).total_seconds()
    assert 0.5 < left <= 1.5
    _, request = as_celery_reads_it(app, START)
    assert request.eta is None


@pytest.mark.parametrize("sent", RINGS, ids=lambda sent: sent.task_id)
def test_a_message_has_the_envelope_that_kombu_writes_to_redis(app: Celery, sent: StepMessage) -> None:
    envelope = json.loads(redis_envelope(sent, "rival"))
    channel = Channel.__new__(Channel)
    channel.body_encoding, channel.codecs, channel.default_priority = "base64", Channel.codecs, 0
    channel.encode_body = lambda body, encoding: (base64.b64encode(body.encode()).decode(), "base64")  # type: ignore[method-assign]
    own = channel.prepare_message("[]", properties={"delivery_mode": 2, "correlation_id": "x", "reply_to": ""})
    assert set(envelope) == set(own)
    assert set(own["properties"]) <= set(envelope["properties"])
    assert envelope["properties"]["delivery_info"] == {"exchange": "", "routing_key": "rival"}


@pytest.mark.parametrize(
    "sent", [*RINGS, StepMessage('a"b\\%s\n\u20ac', "c%d", 1, "w", "v")], ids=lambda sent: sent.task_id
)
def test_an_envelope_has_the_headers_of_the_message(sent: StepMessage) -> None:
    began = time.time()
    envelope = json.loads(redis_envelope(sent, 'q"%s'))
    ours = celery_headers(sent)
    volatile = {"rung_at", "eta"}
    assert envelope["headers"].keys() == ours.keys()
    assert {key: envelope["headers"][key] for key in ours.keys() - volatile} == {
        key: ours[key] for key in ours.keys() - volatile
    }
    assert began <= envelope["headers"]["rung_at"] <= ours["rung_at"] <= time.time()
    assert envelope["properties"]["correlation_id"] == sent.task_id
    assert envelope["properties"]["delivery_info"]["routing_key"] == 'q"%s'


def test_a_message_holds_ids_and_tokens_and_nothing_else() -> None:
    payload = json.loads(redis_envelope(ATTEMPT, "rival"))
    body = json.loads(base64.b64decode(payload["body"]))
    assert body[0] == ["order-1", "charge", 3, "order", "abc"]
    assert payload["headers"]["argsrepr"] == "(run='order-1', step='charge', attempt=2)"


def test_two_copies_of_the_same_message_have_tags_of_their_own() -> None:
    tags = {json.loads(redis_envelope(START, "rival"))["properties"]["delivery_tag"] for _ in range(10)}
    assert len(tags) == 10


def test_every_attempt_has_a_task_id_of_its_own_and_every_step_one_label() -> None:
    assert attempt_id("r", "a", 1) == "r:a:1"
    assert attempt_id("r", "a", 2) == "r:a:2"
    assert attempt_id("r", "a", 1, lost=1) == "r:a:1+1"
    assert (START.task_id, START.label) == ("order-1", "order")
    assert (ATTEMPT.task_id, ATTEMPT.label) == ("order-1:charge:2", "order.charge")
    assert step_label("order", "batches[3]/pack") == "order.pack"


def test_the_cooldown_leaves_a_failed_broker_alone_for_a_moment() -> None:
    cooldown = Cooldown(seconds=60)
    assert cooldown.allows()
    cooldown.failed()
    assert not cooldown.allows()
    soon = Cooldown(seconds=0)
    soon.failed()
    assert soon.allows()


@pytest.mark.parametrize(
    ("url", "redis"), [("redis://h", True), ("rediss://h", True), ("unix:///s", True), ("amqp://h", False)]
)
def test_a_redis_is_known_by_its_url(url: str, redis: bool) -> None:
    assert is_redis(url) is redis


def test_without_a_broker_publish_returns_false() -> None:
    silent: Any = open_doorbell(None, "rival")
    assert isinstance(silent, SilentDoorbell)
    assert not silent.publish([START])
    assert (silent.backlog(), silent.check_epoch()) == (None, False)


def test_a_broker_that_cannot_be_reached_is_not_an_error_and_is_remembered() -> None:
    doorbell = open_doorbell("redis://127.0.0.1:1/0", "rival")
    assert doorbell.publish([START]) is False
    assert doorbell.publish([START]) is False
    assert doorbell.backlog() is None
    doorbell.close()


def test_messages_go_through_kombus_message_class_too(app: Celery) -> None:
    message = Message(
        body=json.dumps(celery_body(START)),
        content_type="application/json",
        content_encoding="utf-8",
        headers=celery_headers(START),
        accept={"application/json"},
    )
    assert message.decode()[0] == START.args
