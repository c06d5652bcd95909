"""The Celery app and its tasks. The settings fit an engine whose state is in the database: messages may be lost."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.exceptions import Ignore, Retry

from rival_client.broker.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK, AnyMessage, EventMessage, StepMessage
from rival_client.broker.redis_doorbell import LIST_NUMBERS
from rival_client.errors import RivalError
from rival_workers.runtime.attempt.coordinator import Coordinator, Verdict
from rival_workers.runtime.attempt.telemetry import counters
from rival_workers.runtime.celery.consumer import AttemptRequest, FastReconnectConsumer, validating_strategy
from rival_workers.runtime.celery.untrusted_messages import Garbage, read_call, report_garbage
from rival_workers.settings import WorkerSettings

log = logging.getLogger("rival.celery")

REDIS_TRANSPORT = "rival_workers.runtime.celery.redis_transport:ValidatingTransport"


class AttemptFailed(RivalError):
    """Raised after the failure was committed, so that Flower and Celery's events show that the attempt failed."""


#: The settings of the app that depend on nothing.
APP_SETTINGS: dict[str, Any] = {
    "task_serializer": "json",
    "accept_content": ["json"],
    "event_serializer": "json",
    "result_backend": None,
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    # The lease decides when an attempt starts again. With late acks, a short loss of the connection would run a
    # running attempt twice.
    "task_acks_late": False,
    "task_reject_on_worker_lost": False,
    "worker_prefetch_multiplier": 1,
    "task_create_missing_queues": True,
    "task_publish_retry": False,
    "broker_pool_limit": 10,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_consumer": FastReconnectConsumer,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_enable_remote_control": True,
    "task_track_started": False,
}


class OwnBroker(Celery):  # type: ignore[misc]
    """Connects to the broker of the settings. Celery itself prefers CELERY_BROKER_URL, which RIVAL_BROKER_URL or a
    stack of `rival dev` replaces."""

    own_broker: str | None = None

    def connection_for_read(self, url: str | None = None, **how: Any) -> Any:
        return super().connection_for_read(url or self.own_broker, **how)

    def connection_for_write(self, url: str | None = None, *args: Any, **how: Any) -> Any:
        return super().connection_for_write(url or self.own_broker, *args, **how)


def make_app(settings: WorkerSettings, concurrency: int = 8) -> Celery:
    app = OwnBroker("rival", broker=settings.broker_url, set_as_current=False)
    app.own_broker = settings.broker_url
    app.conf.update(
        APP_SETTINGS,
        task_default_queue=settings.queue,
        worker_disable_prefetch=_is_redis(settings),
        broker_transport=REDIS_TRANSPORT if _is_redis(settings) else None,
        broker_transport_options=_transport_options(settings, concurrency),
    )
    app.only_tasks = frozenset({RUN_TASK, ATTEMPT_TASK, EVENT_TASK})
    return app


def _is_redis(settings: WorkerSettings) -> bool:
    return (settings.broker_url or "").startswith(("redis", "unix"))


def _transport_options(settings: WorkerSettings, concurrency: int) -> dict[str, Any]:
    if not _is_redis(settings):
        return {}
    return {
        "socket_timeout": 5,
        "socket_connect_timeout": 1,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0,
        "interval_max": 0,
        "max_connections": max(64, concurrency * 2),
        "global_keyprefix": settings.key_prefix,
        # Every message can be published again, so Redis need not keep unacknowledged ones.
        "ack_emulation": False,
        # The lists of a queue, the first one first.
        "priority_steps": sorted(LIST_NUMBERS.values()) if settings.priorities else [0],
    }


class Tasks:
    """The tasks. They read `coordinator` when they run, since each child of a prefork pool has its own."""

    def __init__(self, app: Celery, **more: Any) -> None:
        """`more`: further Celery options for all tasks."""
        self.coordinator: Coordinator | None = None
        options: dict[str, Any] = {
            "shared": False,
            "ignore_result": True,
            "typing": False,
            "throws": (AttemptFailed,),
            # An attribute of the class of the tasks: without this it would be a method.
            "Strategy": staticmethod(validating_strategy),
            "Request": AttemptRequest,
            **more,
        }
        app.task(name=ATTEMPT_TASK, **options)(self.attempt)
        # Only attempts send events: the success of a start message does not mean that its run succeeded.
        app.task(name=RUN_TASK, **options, send_events=False)(self.run)
        app.task(name=EVENT_TASK, **options, send_events=False)(self.event)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Start a run."""
        message = _read(RUN_TASK, args, kwargs)
        if isinstance(message, StepMessage):
            self._ready().begin(message.run_id, message.token, message.workflow, message.version)

    def attempt(self, *args: Any, **kwargs: Any) -> None:
        """Run one attempt of a step."""
        message = _read(ATTEMPT_TASK, args, kwargs)
        if isinstance(message, StepMessage) and message.path is not None:
            _report_to_celery(
                self._ready().attempt(message.run_id, message.path, message.token, message.workflow, message.version)
            )

    def event(self, *args: Any, **kwargs: Any) -> None:
        """Deliver an event to the steps that wait for it."""
        message = _read(EVENT_TASK, args, kwargs)
        if isinstance(message, EventMessage):
            self._ready().deliver(message.event_id)

    def _ready(self) -> Coordinator:
        counters["messages"] += 1
        if self.coordinator is None:
            raise RivalError("this process was not set up to run steps; start it with `rival worker`")
        return self.coordinator


def _report_to_celery(verdict: Verdict) -> None:
    error = verdict.error or {}
    text = f"{error.get('type', 'Error')}: {error.get('message', '')}"
    if verdict.what == "retried":
        raise Retry(text, exc=AttemptFailed(text))
    if verdict.error is not None:
        raise AttemptFailed(text)
    if verdict.what == "stale":
        # Another attempt may have the same task id: a success event here would overwrite its state in Flower.
        raise Ignore("stale")


def _read(task: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AnyMessage | None:
    """Validates the arguments again, for a task that was not called through a worker's strategy."""
    try:
        return read_call(task, [list(args), kwargs, {}], {})
    except Garbage as error:
        report_garbage(error)
        return None
