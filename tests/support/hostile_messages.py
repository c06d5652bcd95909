"""Messages that a worker must survive, by name: what a process that can write to the broker may put into a queue.

`ENVELOPES` are entries of the queue. `CONTROL` are broadcasts to the mailbox that remote control commands come through.
Some are of a shape that Celery acts upon; `HARMLESS` names those that are a good message apart from what must have no
effect.
"""

from __future__ import annotations

import base64
import bz2
import json
import zlib
from collections.abc import Callable
from typing import Any

from rival_client.broker.celery_format import redis_envelope
from rival_client.broker.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK, StepMessage

#: What `make(message)` is given: a message of Rival's for a run that does not exist, or for one that does.
Make = Callable[[StepMessage], bytes]
NOBODY = StepMessage("nobody", "echo", 0, "echo", "v")
EMBED: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
DEPTH = 200_000


def envelope(step_message: StepMessage = NOBODY, **changes: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(redis_envelope(step_message, "q"))
    return message | changes


def packed(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def raw(value: bytes) -> Make:
    return lambda step_message: value


def whole(**changes: Any) -> Make:
    """Parts of the envelope replaced; underscores stand for hyphens."""
    return lambda step_message: json.dumps(
        envelope(step_message, **{k.replace("_", "-"): v for k, v in changes.items()})
    ).encode()


def body(value: Any) -> Make:
    return whole(body=packed(value))


def args(*values: Any, task: str = ATTEMPT_TASK) -> Make:
    return headers(_body=packed([list(values), {}, EMBED]), task=task)


def embedded(**parts: Any) -> Make:
    return lambda step_message: json.dumps(
        envelope(step_message, body=packed([step_message.args, {}, EMBED | parts]))
    ).encode()


def headers(_body: str | None = None, **changes: Any) -> Make:
    def make(step_message: StepMessage) -> bytes:
        message = envelope(step_message)
        message["headers"] |= changes
        message["body"] = _body or message["body"]
        return json.dumps(message).encode()

    return make


def properties(**changes: Any) -> Make:
    def make(step_message: StepMessage) -> bytes:
        message = envelope(step_message)
        message["properties"] |= changes
        return json.dumps(message).encode()

    return make


def without(part: str, key: str | None = None) -> Make:
    def make(step_message: StepMessage) -> bytes:
        message = envelope(step_message)
        del (message if key is None else message[part])[part if key is None else key]
        return json.dumps(message).encode()

    return make


def nested(opening: str, closing: str, inner: str = "1") -> str:
    return opening * DEPTH + inner + closing * DEPTH


def nested_header(step_message: StepMessage) -> bytes:
    text = json.dumps(envelope(step_message))
    return text.replace('"group": null', '"group": ' + nested("[", "]")).encode()


def bomb(method: str, packer: Callable[[bytes], bytes]) -> Make:
    body_ = base64.b64encode(packer(b"[" + b" " * 50_000_000 + b"]")).decode()
    return headers(_body=body_, compression=method)


def protocol_1(**changes: Any) -> Make:
    def make(step_message: StepMessage) -> bytes:
        old = {"task": ATTEMPT_TASK, "id": "x", "args": step_message.args, "kwargs": {}, **changes}
        return json.dumps(envelope(step_message, headers={}, body=packed(old))).encode()

    return make


ENVELOPES: dict[str, Make] = {
    # -- not an envelope
    "not json": raw(b"not json at all"),
    "bytes that are no text": raw(b"\xff\x00\xfe"),
    "nothing": raw(b""),
    "a list": raw(b"[]"),
    "a number": raw(b"7"),
    "a number beyond any float": raw(b"1e999999"),
    "a number of 10,000 digits": raw(b"9" * 10_000),
    "not a number": raw(b"NaN"),
    "null": raw(b"null"),
    "a text": raw(b'"text"'),
    "an empty object": raw(b"{}"),
    "a body and nothing else": raw(b'{"body": "x"}'),
    "200,000 open lists": raw(b"[" * DEPTH),
    "200,000 nested lists": raw(nested("[", "]").encode()),
    "200,000 nested objects": raw(nested('{"a":', "}").encode()),
    "UTF-16": raw("{}".encode("utf-16")),
    "a lone surrogate": raw(b'{"body": "\\ud800", "properties": {}, "headers": {}}'),
    # -- a damaged envelope
    "no body": without("body"),
    "no headers": without("headers"),
    "no properties": without("properties"),
    "no content type": without("content-type"),
    "no content encoding": without("content-encoding"),
    "headers that are null": whole(headers=None),
    "headers that are a list": whole(headers=[1]),
    "headers that are a text": whole(headers="task"),
    "empty headers": whole(headers={}),
    "headers nested 200,000 deep": nested_header,
    "properties that are a list": whole(properties=[]),
    "properties that are a text": whole(properties="x"),
    "a body that is a list": whole(body=[1]),
    "a body that is a number": whole(body=7),
    "a body that is null": whole(body=None),
    "an empty body": whole(body=""),
    "a body of 5 MB": whole(body=base64.b64encode(b" " * 5_000_000).decode()),
    # -- encodings
    "bad base64": whole(body="%%% not base64 %%%"),
    "base64 with wrong padding": whole(body="QQ"),
    "a body in no known encoding": properties(body_encoding="rot13"),
    "a body encoding that is a list": properties(body_encoding=["base64"]),
    "no body encoding": properties(body_encoding=None),
    "base64 of nothing sensible": whole(body=base64.b64encode(b"\xff\xfe{").decode()),
    "binary": whole(body=base64.b64encode(bytes(range(256))).decode()),
    "content type of pickle": whole(content_type="application/x-python-serialize"),
    "content type of yaml": whole(content_type="application/x-yaml"),
    "unknown content type": whole(content_type="application/x-nobody-knows"),
    "content type that is a list": whole(content_type=["application/json"]),
    "unknown content encoding": whole(content_encoding="klingon"),
    "content encoding that is a number": whole(content_encoding=8),
    "a zlib bomb": bomb("application/x-gzip", zlib.compress),
    "a bzip2 bomb": bomb("application/x-bz2", bz2.compress),
    "unknown compression": headers(compression="application/x-nobody-knows"),
    "compression that is a list": headers(compression=[1]),
    # -- bodies of the wrong shape
    "body is a string": body("hello"),
    "body is a number inside": body(7),
    "body is null inside": body(None),
    "body is false": body(False),
    "body is an object": body({"run": "r"}),
    "body is an empty list": body([]),
    "body is too short": body([["r"]]),
    "body is too long": body([["r"], {}, EMBED, 4]),
    "a body nested 200,000 deep": whole(body=base64.b64encode(nested("[", "]").encode()).decode()),
    "arguments nested 10,000 deep": whole(
        body=base64.b64encode(b"[" + b"[" * 10_000 + b"]" * 10_000 + b",{},{}]").decode()
    ),
    "args are an object": body([{"run": "r"}, {}, EMBED]),
    "args are null": body([None, {}, EMBED]),
    "kwargs are a list": body([list(NOBODY.args), [1], EMBED]),
    "kwargs are null": body([list(NOBODY.args), None, EMBED]),
    "no arguments": body([[], {}, EMBED]),
    "too many arguments": body([[1] * 2000, {}, EMBED]),
    "unexpected keywords": body([[], {"run_id": "r"}, EMBED]),
    "self as a keyword": body([list(NOBODY.args), {"self": 1}, EMBED]),
    # -- arguments
    "arguments of the wrong kinds": args(1, 2, "three", None, {}),
    "a token that is true": args("r", "echo", True, "echo", "v"),
    "a token that is a float": args("r", "echo", 0.5, "echo", "v"),
    "a token that is not a number": args("r", "echo", float("nan"), "echo", "v"),
    "a token that is infinite": args("r", "echo", float("inf"), "echo", "v"),
    "a token below zero": args("r", "echo", -1, "echo", "v"),
    "a token beyond 64 bits": args("r", "echo", 2**70, "echo", "v"),
    "an attempt without a step": args("r", None, 0, "echo", "v"),
    "the start of a step": args("r", "echo", 0, "echo", "v", task=RUN_TASK),
    "a NUL in the run": args("r\x00s", "echo", 0, "echo", "v"),
    "a lone surrogate in the run": args("\ud800", "echo", 0, "echo", "v"),
    "an empty run": args("", "echo", 0, "echo", "v"),
    "an empty step": args("r", "", 0, "echo", "v"),
    "a run of 60,000 characters": args("r" * 60_000, "echo", 0, "echo", "v"),
    "a run of 1,000,000 characters": args("r" * 1_000_000, "echo", 0, "echo", "v"),
    "SQL in the run": args("'; DROP TABLE rival_runs; --", "echo", 0, "echo", "v"),
    "a run that does not exist": whole(),
    "an unknown workflow": args("r", "echo", 0, "nobody.knows", "v"),
    "an event that is a number": args(7, task=EVENT_TASK),
    "an event that does not exist": args("nobody", task=EVENT_TASK),
    "an event with a NUL": args("a\x00b", task=EVENT_TASK),
    "an event with a step's arguments": args("r", "echo", 0, "echo", "v", task=EVENT_TASK),
    # -- tasks
    "no task": without("headers", "task"),
    "an unknown task": headers(task="somebody.elses.task"),
    "a task of Celery's own": headers(task="celery.backend_cleanup"),
    "celery.chord_unlock": headers(task="celery.chord_unlock", _body=packed([["g", {}, 1], {}, EMBED])),
    "a task that is a list": headers(task=["rival.attempt"]),
    "a task that is an object": headers(task={"rival.attempt": 1}),
    "a task that is null": headers(task=None),
    "an empty task": headers(task=""),
    "a task of 100,000 characters": headers(task="t" * 100_000),
    "protocol 1": protocol_1(),
    "protocol 1 with an unknown task": protocol_1(task="nobody"),
    "protocol 1 with keywords that are a list": protocol_1(kwargs=[1]),
    "protocol 1 without arguments": protocol_1(args=None),
    "both protocols at once": headers(_body=packed({"args": [1], "kwargs": {}, "task": ATTEMPT_TASK})),
}

#: A good message but for one thing, which must have no effect: it is sent for a run of its own, which completes.
HARMLESS: dict[str, Make] = {
    "no id": without("headers", "id"),
    "an id that is null": headers(id=None),
    "an id that is a list": headers(id=["x"]),
    "an id that is an object": headers(id={"a": 1}),
    "an id that is a number": headers(id=7),
    "an id of 1,000,000 characters": headers(id="x" * 1_000_000),
    "an id with a NUL": headers(id="a\x00b"),
    "an id with a huge attempt": headers(id="echo:1" + "0" * 500),
    "a time limit of 0": headers(timelimit=[0, 0]),
    "a time limit of a moment": headers(timelimit=[0.001, 0.001]),
    "a soft time limit alone": headers(timelimit=[None, 0.001]),
    "a time limit below zero": headers(timelimit=[-1, -1]),
    "a time limit that is a text": headers(timelimit="soon"),
    "a time limit of texts": headers(timelimit=["1", "2"]),
    "a time limit that is a number": headers(timelimit=5),
    "a time limit of one": headers(timelimit=[1]),
    "a time limit of three": headers(timelimit=[1, 2, 3]),
    "a time limit that is an object": headers(timelimit={"hard": 1}),
    "a time limit that is not a number": headers(timelimit=[float("nan"), float("nan")]),
    "a time limit beyond any clock": headers(timelimit=[1e300, 1e300]),
    "an eta that is no time": headers(eta="next tuesday"),
    "an eta that is a number": headers(eta=7),
    "an eta in the year 1": headers(eta="0001-01-01T00:00:00+00:00"),
    "an eta in the year 9999": headers(eta="9999-12-31T23:59:59+00:00"),
    "an eta in a week": headers(eta="2999-01-01T00:00:00+00:00"),
    "an eta without a time zone": headers(eta="2020-01-01T00:00:00"),
    "an eta in an odd time zone": headers(eta="0001-01-01T00:00:00+23:59"),
    "an eta that is a list": headers(eta=[1]),
    "an eta of 100,000 characters": headers(eta="1" * 100_000),
    "expires in the past": headers(expires="2001-01-01T00:00:00+00:00"),
    "expires that is a number": headers(expires=1),
    "expires that is no time": headers(expires="never"),
    "expires in the year 1": headers(expires="0001-01-01T00:00:00+23:59"),
    "countdown": headers(countdown=1e300),
    "utc that is a text": headers(utc="yes", timezone="Mars/Olympus"),
    "another language": headers(lang="java"),
    "retries that are a text": headers(retries="many"),
    "retries beyond any number": headers(retries=10**400),
    "a group": headers(group="g", group_index=-1),
    "a group that is an object": headers(group={"a": 1}, group_index="x"),
    "groups": headers(groups=[1, "x", None]),
    "a root that is a list": headers(root_id=[1], parent_id={}),
    "a shadow that is a list": headers(shadow=["x"]),
    "a shadow of 100,000 characters": headers(shadow="x" * 100_000),
    "argsrepr that is an object": headers(argsrepr={"a": 1}, kwargsrepr=[1]),
    "origin that is a list": headers(origin=[1]),
    "ignore_result false": headers(ignore_result=False),
    "ignore_result that is an object": headers(ignore_result={"a": 1}),
    "replaced_task_nesting that is a text": headers(replaced_task_nesting="deep"),
    "stamped headers": headers(stamped_headers=["a"], stamps={"a": ["b"]}),
    "stamped headers that are a number": headers(stamped_headers=7, stamps=7),
    "stamped headers of unhashable things": headers(stamped_headers=[["a"], {}], stamps={"a": 1}),
    "a clock that is a text": headers(clock="noon"),
    "a clock beyond any number": headers(clock=10**400),
    "headers that Celery sets itself": headers(
        hostname="x", delivery_info=7, is_eager=True, called_directly=True, loglevel="x", logfile="/etc/passwd"
    ),
    "callbacks": embedded(callbacks=[{"task": "rival.run", "args": [], "kwargs": {}, "options": {}}]),
    "callbacks that are a text": embedded(callbacks="x"),
    "errbacks": embedded(errbacks=[{"task": "nobody", "args": [], "options": {}}]),
    "errbacks that are a number": embedded(errbacks=7),
    "a chain": embedded(chain=[{"task": "nobody", "args": [1], "kwargs": {}, "options": {}}]),
    "a chain that is a text": embedded(chain="x"),
    "a chord": embedded(chord={"task": "nobody", "args": [], "options": {"task_id": "x"}}),
    "a chord that is a list": embedded(chord=[1]),
    "an embed that is null": lambda step_message: whole(body=packed([step_message.args, {}, None]))(step_message),
    "an embed that is a text": lambda step_message: whole(body=packed([step_message.args, {}, "x"]))(step_message),
    "reply_to": properties(reply_to="somebody", correlation_id="x"),
    "reply_to that is a list": properties(reply_to=[1]),
    "a correlation id that is an object": properties(correlation_id={"a": 1}),
    "a priority out of range": properties(priority=10**30),
    "a priority that is a text": properties(priority="high"),
    "a delivery mode that is a text": properties(delivery_mode="x"),
    "no delivery info": without("properties", "delivery_info"),
    "delivery info that is a list": properties(delivery_info=[1]),
    "delivery info for another queue": properties(delivery_info={"exchange": "celery", "routing_key": "elsewhere"}),
    "no delivery tag": without("properties", "delivery_tag"),
    "a delivery tag that is a list": properties(delivery_tag=[1]),
    "a delivery tag that clashes": properties(delivery_tag="same"),
    "a delivery tag that clashes again": properties(delivery_tag="same"),
    "properties nobody knows": properties(expiration="soon", type="x", app_id=7),
}


def control(value: Any, **changes: Any) -> bytes:
    """A broadcast, as kombu publishes one."""
    message = envelope(body=packed(value), headers={"clock": 1, "expires": None})
    return json.dumps(message | changes).encode()


CONTROL: dict[str, bytes] = {
    "not json": b"not json",
    "nothing": b"",
    "a list": b"[]",
    "200,000 nested lists": nested("[", "]").encode(),
    "no body": b'{"headers": {}, "properties": {}}',
    "a body that is a list": control([1]),
    "a body that is a text": control("ping"),
    "a body that is null": control(None),
    "a body nested 200,000 deep": control(0, body=base64.b64encode(nested("[", "]").encode()).decode()),
    "bad base64": control(0, body="%%%"),
    "pickle": control(0, **{"content-type": "application/x-python-serialize"}),
    "no method": control({"arguments": {}}),
    "an unknown method": control({"method": "nobody_knows", "arguments": {}}),
    "a method that is a list": control({"method": [1], "arguments": {}}),
    "arguments that are a list": control({"method": "ping", "arguments": [1]}),
    "unexpected arguments": control({"method": "ping", "arguments": {"a": 1}}),
    "unexpected keys": control({"method": "ping", "arguments": {}, "self": 1}),
    "a destination that is a number": control({"method": "ping", "arguments": {}, "destination": 7}),
    "a pattern that is no expression": control({"method": "ping", "pattern": "(((", "matcher": "pcre"}),
    "an unknown matcher": control({"method": "ping", "pattern": "x", "matcher": "nobody"}),
    "reply_to that is a text": control({"method": "ping", "arguments": {}, "reply_to": "x"}),
    "reply_to without a queue": control({"method": "ping", "arguments": {}, "reply_to": {"exchange": "x"}}),
    "reply_to of lists": control({"method": "ping", "arguments": {}, "reply_to": {"exchange": [1], "routing_key": {}}}),
    "a clock that is a text": control({"method": "ping"}, headers={"clock": "noon"}),
    "a clock beyond any number": control({"method": "ping"}, headers={"clock": 10**400}),
    "revoke without an id": control({"method": "revoke", "arguments": {}}),
    "revoke of an object": control({"method": "revoke", "arguments": {"task_id": {"a": 1}}}),
    "revoke of numbers": control({"method": "revoke", "arguments": {"task_id": [1, None, 2.5], "terminate": True}}),
    "revoke of nested lists": control({"method": "revoke", "arguments": {"task_id": [["a"]]}}),
    "revoke with an unknown signal": control(
        {"method": "revoke", "arguments": {"task_id": "x", "terminate": True, "signal": "SIGNOBODY"}}
    ),
    "revoke of 10,000 ids": control({"method": "revoke", "arguments": {"task_id": [f"x{n}" for n in range(10_000)]}}),
    "terminate of nobody": control({"method": "terminate", "arguments": {"task_id": "x", "signal": "KILL"}}),
    "a revoke of stamps that are a text": control(
        {"method": "revoke_by_stamped_headers", "arguments": {"headers": ["x"]}}
    ),
    "hello with garbage": control({"method": "hello", "arguments": {"from_node": "x", "revoked": [[1], {}]}}),
}
