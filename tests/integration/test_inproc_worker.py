"""What the in-process transport and worker promise, tried with Celery's real worker; no broker is needed."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, current_app
from celery.result import assert_will_not_block
from celery.worker import state
from kombu import Connection, Exchange, Queue

from rival_workers.library import inproc_broker, inproc_transport
from rival_workers.library.inproc_worker import InprocWorker
from tests.support.output import whole
from tests.support.threads import join_all

SETTINGS = {
    "task_serializer": "json",
    "accept_content": ["json"],
    "result_backend": None,
    "task_ignore_result": True,
    "task_acks_late": False,
    "task_publish_retry": False,
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
}


class Stage:
    """One app on its own namespace, with the tasks that the tests send and what they recorded."""

    def __init__(self) -> None:
        inproc_transport.register()
        self.name = f"test-{uuid4().hex}"
        self.app = Celery(self.name, broker=f"rival-inproc://{self.name}/", set_as_current=False)
        self.app.conf.update(SETTINGS)
        self.broker = inproc_broker.broker_named(self.name)
        self.seen: list[tuple[Any, float]] = []
        self.begun, self.release = threading.Event(), threading.Event()
        self.note = self._task("note", self._note)
        self.hold = self._task("hold", self._hold)
        self.fail = self._task("fail", self._fail)

    def _task(self, name: str, function: Callable[..., None]) -> Any:
        # Not shared: Celery would put the task into every other app of the process too.
        # Not typed: its check of the arguments would ask for the `self` of a bound method.
        return self.app.task(name=name, shared=False, typing=False)(function)

    def _note(self, what: Any = None) -> None:
        self.seen.append((what, time.time()))

    def _hold(self) -> None:
        self.begun.set()
        assert self.release.wait(20)
        self._note("held")

    def _fail(self, how: str) -> None:
        self._note(how)
        raise {"error": ValueError, "exit": SystemExit}[how]("as asked")

    def waiting(self) -> int:
        return self.broker.size("celery")

    def whats(self) -> list[Any]:
        return [what for what, _ in self.seen]


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.release.set()
    inproc_broker.drop_namespace(stage.name)


@pytest.fixture(params=["threads", "solo"])
def worker(request: pytest.FixtureRequest, stage: Stage) -> Iterator[InprocWorker]:
    worker = InprocWorker(stage.app, pool=request.param)
    yield worker
    stage.release.set()
    worker.stop()


@pytest.fixture
def one_thread(stage: Stage) -> Iterator[InprocWorker]:
    worker = InprocWorker(stage.app, concurrency=1)
    yield worker
    stage.release.set()
    worker.stop()


def until(condition: Callable[[], object], timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


def in_another_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def publish_at_intervals(stage: Stage, count: int) -> None:
    for _ in range(count):
        stage.note.delay(time.time())
        time.sleep(0.005)


def publish_raw(stage: Stage, body: Any, **options: Any) -> None:
    with stage.app.connection_for_write() as connection:
        connection.Producer().publish(body, routing_key="celery", **options)


# Order and time. How quick it is, `python -m benchmarks.inproc_tasks` measures.


def test_tasks_published_from_another_thread_run_in_their_order(stage: Stage, one_thread: InprocWorker) -> None:
    one_thread.start()
    in_another_thread(lambda: publish_at_intervals(stage, 40))
    until(lambda: len(stage.seen) == 40)
    published = stage.whats()
    assert published == sorted(published)
    assert all(ran >= published_at for published_at, ran in stage.seen)


def test_2000_tasks_that_were_published_before_the_start_run_once_each(stage: Stage, worker: InprocWorker) -> None:
    for number in range(2000):
        stage.note.delay(number)
    worker.start()
    until(lambda: len(stage.seen) >= 2000, timeout=60)
    assert sorted(stage.whats()) == list(range(2000))


def test_countdowns_are_never_early_and_run_in_the_order_of_their_times(stage: Stage, one_thread: InprocWorker) -> None:
    one_thread.start()
    for countdown in (0.4, 0.001, 0.2, 0.6, 0.05):
        stage.note.apply_async(args=[time.time() + countdown], countdown=countdown)
    until(lambda: len(stage.seen) == 5)
    due = stage.whats()
    assert due == sorted(due)
    assert min(ran - its_due for its_due, ran in stage.seen) >= 0


def test_a_countdown_does_not_wait_for_a_longer_one_that_came_before_it(stage: Stage, worker: InprocWorker) -> None:
    worker.start()
    stage.note.apply_async(args=["far"], countdown=30)
    for number in range(5):
        stage.note.apply_async(args=[number], countdown=0.05)
    until(lambda: len(stage.seen) == 5, timeout=25)
    assert sorted(stage.whats()) == list(range(5))


def test_a_timer_that_another_thread_sets_wakes_an_idle_worker_and_is_never_early(
    stage: Stage, worker: InprocWorker
) -> None:
    worker.start()
    time.sleep(0.05)
    assert worker._controller is not None
    worker._controller.timer.call_after(0.05, stage._note, (time.time() + 0.05,))
    until(lambda: stage.seen)
    [(due, ran)] = stage.seen
    assert ran >= due


def test_an_idle_worker_uses_no_cpu(stage: Stage) -> None:
    with InprocWorker(stage.app):
        stage.note.delay()
        until(lambda: stage.seen)
        used = time.process_time()
        time.sleep(1)
        assert time.process_time() - used < 0.020


# Keeping going


@pytest.mark.parametrize("how", ["error", "exit"])
def test_what_a_task_raises_does_not_stop_the_worker(stage: Stage, worker: InprocWorker, how: str) -> None:
    worker.start()
    for _ in range(10):
        stage.fail.delay(how)
    stage.note.delay("after")
    # Threads may note the last task before the others.
    until(lambda: sorted(stage.whats()) == sorted(["after", *[how] * 10]))
    assert worker.running
    until(lambda: not state.requests)  # Celery knows how each of them ended


MALFORMED: list[tuple[Any, dict[str, Any]]] = [
    ({"what": "is this"}, {}),
    ("not a task", {"headers": {"task": "note", "id": "1"}}),
    ([[], {}], {"headers": {"task": "note", "id": "1"}}),
    ([[], {}, {}], {"headers": {"task": "note"}}),
    ([[], {}, {}], {"headers": {"task": "unknown"}}),
    ([[], {}, {}], {"headers": {"task": "note", "id": "1", "eta": "soon"}}),
    ([[], {}, {}], {"headers": {"task": ["note"], "id": "1"}}),
    (b"{", {"headers": {"task": "note", "id": "1"}, "content_type": "application/json"}),
    (b"\xff", {"content_type": "application/json", "content_encoding": "utf-8"}),
    (b"", {"headers": {"task": "note", "id": "1"}, "content_type": "application/x-python-serialize"}),
    (b"x", {"headers": {"task": "note", "id": "1", "compression": "gzip"}, "content_type": "text/plain"}),
]


def test_malformed_messages_are_discarded_and_the_worker_goes_on(stage: Stage, worker: InprocWorker) -> None:
    worker.start()
    for body, options in MALFORMED:
        publish_raw(stage, body, **options)
        stage.note.delay("after")
    until(lambda: stage.whats().count("after") == len(MALFORMED))
    assert worker.running
    assert worker.stop()
    assert stage.waiting() == 0


def test_more_tasks_than_threads_and_countdowns_all_run_once(stage: Stage, worker: InprocWorker) -> None:
    worker.start()
    for number in range(100):
        stage.note.apply_async(args=[number], countdown=0.1 if number % 2 else None)
    until(lambda: len(stage.seen) >= 100)
    time.sleep(0.05)
    assert sorted(stage.whats()) == list(range(100))


# Starting and stopping


def test_stop_lets_a_running_task_finish_and_start_works_again(stage: Stage, worker: InprocWorker) -> None:
    for cycle in range(1, 4):
        stage.begun.clear()
        stage.release.clear()
        worker.start()
        stage.hold.delay()
        assert stage.begun.wait(5)
        threading.Timer(0.1, stage.release.set).start()
        assert worker.stop()
        assert stage.whats() == ["held"] * cycle
        assert not worker.running


def test_an_idle_worker_stops_at_once(stage: Stage, worker: InprocWorker) -> None:
    worker.start()
    time.sleep(0.05)
    began = time.monotonic()
    assert worker.stop()
    assert time.monotonic() - began < 0.5


def test_stop_gives_up_on_a_task_that_outlasts_its_timeout_and_says_so(stage: Stage, one_thread: InprocWorker) -> None:
    one_thread.start()
    stage.hold.delay()
    assert stage.begun.wait(5)
    assert not one_thread.stop(timeout=0.1)
    assert not [one for one in state.requests.values() if one.hostname == one_thread.hostname]
    one_thread.start()
    stage.note.delay("next")
    until(lambda: stage.whats() == ["next"])
    assert one_thread.stop()


def test_what_a_stopped_worker_had_not_begun_is_kept_in_order_for_the_next(
    stage: Stage, one_thread: InprocWorker
) -> None:
    one_thread.start()
    stage.hold.delay()
    assert stage.begun.wait(5)
    for number in range(5):
        stage.note.delay(number)
    stage.note.apply_async(args=["later"], countdown=0.3)
    threading.Timer(0.05, stage.release.set).start()
    stage.broker.wait(stage.broker.version, 0.02)
    assert one_thread.stop()
    assert stage.waiting() + len(stage.seen) == 7
    one_thread.start()
    until(lambda: len(stage.seen) == 7)
    one_thread.stop()
    assert stage.whats() == ["held", 0, 1, 2, 3, 4, "later"]


def test_a_second_worker_in_the_process_is_refused(stage: Stage) -> None:
    with (
        InprocWorker(stage.app),
        pytest.raises(RuntimeError, match=whole("this process already runs an in-process worker: stop that one first")),
    ):
        InprocWorker(stage.app).start()
    with InprocWorker(stage.app):
        pass


def test_start_says_why_a_worker_could_not_start_and_the_next_one_can(stage: Stage) -> None:
    stage.note.Strategy = "no.such.module:strategy"
    with pytest.raises(RuntimeError, match=whole("the in-process worker could not start: No module named 'no'")):
        InprocWorker(stage.app).start()
    stage.note.Strategy = stage.hold.Strategy
    with InprocWorker(stage.app):
        pass


def test_another_kind_of_broker_is_refused() -> None:
    app = Celery("elsewhere", broker="memory://", set_as_current=False)
    with pytest.raises(
        ValueError,
        match=whole(
            "an in-process worker needs a broker at rival-inproc://name/, but app 'elsewhere' has "
            "memory://:**@localhost//"
        ),
    ):
        InprocWorker(app).start()


def test_the_process_is_left_as_it_was(stage: Stage) -> None:
    def surroundings() -> list[Any]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        root = logging.getLogger()
        return [handlers, list(root.handlers), root.level, sys.stdout, sys.stderr, current_app.main]

    before = surroundings()
    with InprocWorker(stage.app):
        assert surroundings() == before
        assert_will_not_block()
    assert surroundings() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rival-inproc")]


def test_neither_the_worker_nor_a_running_task_holds_up_the_end_of_the_process() -> None:
    script = """
        import threading, time
        from celery import Celery
        from rival_workers.library import inproc_transport
        from rival_workers.library.inproc_worker import InprocWorker
        inproc_transport.register()
        app = Celery("t", broker="rival-inproc://x/", set_as_current=False)
        begun = threading.Event()
        @app.task
        def long():
            begun.set()
            time.sleep(30)
        InprocWorker(app, concurrency=1).start()
        long.delay(), long.delay(), long.apply_async(countdown=20)
        assert begun.wait(5)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, timeout=10, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# The transport


def test_namespaces_do_not_see_each_others_messages(stage: Stage) -> None:
    other = Stage()
    with InprocWorker(stage.app):
        other.note.delay("other")
        stage.note.delay("mine")
        until(lambda: stage.whats() == ["mine"])
        time.sleep(0.05)
    assert other.seen == []
    assert other.waiting() == 1
    inproc_broker.drop_namespace(other.name)


def test_queues_can_be_counted_and_purged(stage: Stage) -> None:
    for _ in range(3):
        stage.note.delay()
    with stage.app.connection_for_read() as connection:
        channel = connection.default_channel
        assert channel.queue_declare("celery", passive=True).message_count == 3
        with pytest.raises(connection.channel_errors):
            channel.queue_declare("nobody declared this", passive=True)
    assert stage.app.control.purge() == 3
    assert stage.waiting() == 0


def test_remote_control_and_events_work_and_leave_no_queues_behind(stage: Stage) -> None:
    stage.app.conf.worker_send_task_events = True
    events: list[str] = []
    with InprocWorker(stage.app), stage.app.connection_for_read() as own:
        receiver = stage.app.events.Receiver(own, {"*": lambda event: events.append(event["type"])})
        with receiver.consumer_context(wakeup=False) as (connection, _, _):
            stage.note.delay()
            until(lambda: stage.seen)
            [reply] = stage.app.control.ping(timeout=0.2)
            assert list(reply.values()) == [{"ok": "pong"}]
            for _ in range(3):
                connection.drain_events(timeout=1)
    assert events == ["task-received", "task-started", "task-succeeded"]
    assert list(stage.broker._queues) == ["celery"]


def test_producers_in_many_threads_lose_nothing(stage: Stage) -> None:
    gate = threading.Barrier(8)

    def produce() -> None:
        gate.wait()
        with Connection(f"rival-inproc://{stage.name}/") as connection:
            queue = Queue("jobs", Exchange("jobs", type="direct"), routing_key="jobs")
            for number in range(50):
                connection.Producer().publish(
                    {"n": number}, exchange=queue.exchange, routing_key="jobs", declare=[queue]
                )

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stage.broker.size("jobs") == 400


def test_no_two_threads_change_routes_at_the_same_time(stage: Stage) -> None:
    with stage.app.connection_for_write() as connection:
        channel = connection.default_channel
        changes = [
            lambda: channel.exchange_declare("jobs"),
            lambda: channel.queue_bind("jobs", "jobs", "jobs"),
            lambda: channel.queue_unbind("jobs", "jobs", "jobs"),
            lambda: channel.queue_delete("jobs"),
            lambda: channel.exchange_delete("jobs"),
        ]
        for change in changes:
            thread = threading.Thread(target=change)
            with stage.broker.changed:
                thread.start()
                time.sleep(0.02)
                assert thread.is_alive()
            join_all([thread])


def test_a_sender_may_use_its_headers_again(stage: Stage) -> None:
    headers = {"attempt": 1}
    publish_raw(stage, "x", headers=headers)
    headers["attempt"] = 2
    assert stage.broker.get("celery")["headers"]["attempt"] == 1


def test_register_is_idempotent_and_a_url_without_its_slash_is_the_same_namespace(stage: Stage) -> None:
    inproc_transport.register()
    inproc_transport.register()
    stage.note.delay()
    with Connection(f"rival-inproc://{stage.name}") as connection:
        assert connection.default_channel.queue_declare("celery", passive=True).message_count == 1
