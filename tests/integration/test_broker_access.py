"""A Redis user who may not do what a worker does gets a message with the ACL rule that is missing, and no loop."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from rival_client import Rival
from rival_client.errors import ConfigurationError
from rival_client.settings import Settings
from rival_workers.cli.doctor.broker_checks import check_broker
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.runtime.celery.broker_access import require_access
from rival_workers.settings import WorkerSettings
from tests.support.output import is_printed, whole
from tests.support.workers import Workers, lines_like, wait_until

WORKFLOW = """
from rival_workers import create_workflow

def echo(input): return input

create_workflow("echo").step(echo).register()
"""
EVERYTHING = "~* &* +@all -@dangerous"
#: What a user may do, what is said to be missing, and the line that adds it.
RULES = {
    "no channels": ("~* resetchannels +@all", "PSUBSCRIBE on channel '/0.celery.pidbox'", "ACL SETUSER fleet &*"),
    "other channels": (
        "~* resetchannels &mine:* +@all",
        "PUBLISH on channel 'rival:changed:x'",
        "ACL SETUSER fleet &*",
    ),
    "no keys": ("resetkeys &* +@all", "LPUSH on key", "ACL SETUSER fleet ~*"),
    "other keys": ("resetkeys ~mine:* &* +@all", "BRPOP on key", "ACL SETUSER fleet ~*"),
    "no lpush": ("~* &* +@all -lpush", "the command LPUSH", "ACL SETUSER fleet +lpush"),
    "no brpop and psubscribe": (
        "~* &* +@all -brpop -psubscribe",
        "the command BRPOP, the command PSUBSCRIBE",
        "ACL SETUSER fleet +brpop +psubscribe",
    ),
    "no multi": ("~* &* +@all -multi", "the command MULTI", "ACL SETUSER fleet +multi"),
    "reading only": ("~* &* -@all +@read +@connection +multi", "the command LPUSH", "ACL SETUSER fleet +lpush"),
}


class Guarded:
    """A broker with a user `fleet` whose rights a test sets."""

    def __init__(self, server: BrokerServer) -> None:
        self.admin = redis.Redis.from_url(server.url)
        self.place = urlsplit(server.url)

    def allow(self, rules: str) -> None:
        self.admin.execute_command(
            "ACL", "SETUSER", "fleet", "reset", "resetchannels", "on", ">hunter2", *rules.split()
        )

    def url(self, password: str = "hunter2") -> str:
        return f"redis://fleet:{password}@{self.place.hostname}:{self.place.port}/0"

    def settings(self, password: str = "hunter2", **more: str) -> WorkerSettings:
        return WorkerSettings(broker_url=self.url(password), **more)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with tempfile.TemporaryDirectory(prefix="acl-", ignore_cleanup_errors=True) as name:
        server = BrokerServer(Path(name))
        server.start()
        yield Guarded(server)
        server.stop()


@pytest.mark.parametrize("what", RULES)
def test_each_missing_right_is_named_with_the_rule_that_gives_it(guarded: Guarded, what: str) -> None:
    rules, missing, line = RULES[what]
    guarded.allow(rules)
    with pytest.raises(ConfigurationError) as caught:
        require_access(guarded.settings())
    lacks = f"User 'fleet' lacks rights at the broker {guarded.url('***')} that a worker needs: …{missing}…"
    assert is_printed([f"{lacks}. Add the rights: {line}…"], [str(caught.value)])
    [check] = [check for check in check_broker(guarded.settings()) if check.status == "fail"]
    assert is_printed([f"…{missing}…"], [check.message])
    assert "hunter2" not in check.message
    assert line in (check.advice or "")
    assert guarded.admin.keys() == [], "nothing was written to find out"


@pytest.mark.parametrize("what", [name for name in RULES if name != "no multi"])
def test_the_lines_that_are_given_lead_to_enough_rights(guarded: Guarded, what: str) -> None:
    guarded.allow(RULES[what][0])
    for _ in range(3):
        try:
            require_access(guarded.settings())
        except ConfigurationError as error:
            guarded.admin.execute_command(*str(error).partition("Add the rights: ")[2].split())
    require_access(guarded.settings())


def test_a_prefix_is_enough(guarded: Guarded) -> None:
    guarded.allow("~team:* &team:* +@all -@dangerous")
    with pytest.raises(
        ConfigurationError,
        match=whole(
            "User 'fleet' lacks rights at the broker redis://fleet:***@… that a worker needs: PSUBSCRIBE on "
            "channel 'team:/0.celery.pidbox'. Add the rights: ACL SETUSER fleet &team:/0.celery.pidbox"
        ),
    ):
        require_access(guarded.settings(key_prefix="team:"))
    guarded.allow("~team:* &team:* &team:/0.celery.pidbox +@all -@dangerous")
    require_access(guarded.settings(key_prefix="team:"))
    with pytest.raises(ConfigurationError, match=r"ACL SETUSER fleet ~\* &\*"):
        require_access(guarded.settings())


def test_a_wrong_password_is_said_so(guarded: Guarded) -> None:
    guarded.allow(EVERYTHING)
    with pytest.raises(
        ConfigurationError,
        match=whole(
            "The broker at redis://fleet:***@… refuses the login (invalid username-password pair or user is "
            "disabled.). Check user and password in RIVAL_BROKER_URL."
        ),
    ):
        require_access(guarded.settings(password="wrong"))
    [check] = [check for check in check_broker(guarded.settings(password="wrong")) if check.status == "fail"]
    assert check.message == (
        f"The broker at {guarded.url('***')} refuses the login (invalid username-password pair or user is disabled.). "
        "Check user and password in RIVAL_BROKER_URL."
    )


def test_a_broker_that_does_not_answer_is_another_matter() -> None:
    require_access(WorkerSettings(broker_url="redis://127.0.0.1:1/0"))


@pytest.mark.slow
def test_a_worker_says_what_is_missing_and_runs_once_it_is_given(
    workers: Workers, guarded: Guarded, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "echo.py"
    file.write_text(WORKFLOW)
    guarded.allow(RULES["no channels"][0])
    workers.env["RIVAL_BROKER_URL"] = guarded.url()
    [denied] = workers.start(file, wait=False)
    wait_until(lambda: denied.process.poll() is not None, 40, "the worker has ended")
    assert denied.process.poll() == 1
    line = (
        f"rival worker: User 'fleet' lacks rights at the broker {guarded.url('***')} that a worker needs: "
        "…PSUBSCRIBE on channel '/0.celery.pidbox'. Add the rights: ACL SETUSER fleet &*"
    )
    assert len(lines_like(denied.log, line)) == 1, denied.log
    assert "Traceback" not in denied.log
    for pool in ("threads", "prefork", "solo"):
        guarded.allow(EVERYTHING)
        [worker] = workers.start(file, pool=pool, concurrency=1)
        with Rival(settings=settings.with_(broker_url=guarded.url())) as rival:
            run = rival.run("echo", pool)
            assert rival.wait("echo", run.run_id, timeout=20).result == pool
        worker.kill()
