"""The promises of the embedded stack, kept by real processes that are started, killed and frozen."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis

from rival_workers.dev import binaries, private_directories, spawn
from rival_workers.dev.binaries import PostgresBinaries, find_broker, find_postgres
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.dev.errors import StackError
from rival_workers.dev.postgres_server import PostgresServer, another_user
from rival_workers.dev.stack import create_database, drop_database, open_stack
from rival_workers.dev.stack_files import read_state
from rival_workers.dev.stack_paths import StackPaths
from rival_workers.dev.supervisor import ATTEMPTS, WITHIN, RestartBudget
from tests.support.output import whole
from tests.support.workers import wait_until

ROOT = Path(__file__).parents[2]
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")

# Without what `import rival_workers` brings along: that takes seconds and spreads concurrent starters in time.
LIGHT = """
import sys, types
sys.modules["rival_workers"] = types.ModuleType("rival_workers")
sys.modules["rival_workers"].__path__ = ["rival_workers"]
"""

# Opens a stack, says so, and stays until its input is closed.
USER = """
import json, sys
from rival_workers.dev.stack import open_stack
with open_stack(sys.argv[1]) as stack:
    print(json.dumps([stack.database_url, stack.broker_url]), flush=True)
    sys.stdin.read()
"""

# Owns a frozen Postgres itself, without a supervisor.
FREEZER = """
import sys
from rival_workers.dev.postgres_server import PostgresServer
server = PostgresServer(sys.argv[1])
server.start()
server.freeze()
print(server.pid, flush=True)
sys.stdin.read()
"""


def processes_of(directory: Path) -> list[str]:
    """Everything that works in `directory` or was started for it, except the test itself."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), process.cwd()]
            if process.pid != os.getpid() and any(str(directory) in word for word in words):
                found.append(f"{process.pid} {process.status()} {' '.join(words)}")
    return found


def wait_until_nothing_runs_in(directory: Path) -> None:
    wait_until(lambda: not processes_of(directory), 10, lambda: f"nothing runs: {processes_of(directory)}")


def start_user(directory: Path, script: str = USER, **options: Any) -> subprocess.Popen[str]:
    command = [*options.pop("prefix", []), sys.executable, "-c", LIGHT + script, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, **options)


def first_line(user: subprocess.Popen[str]) -> str:
    assert user.stdout is not None
    return user.stdout.readline()


def leave(user: subprocess.Popen[str]) -> None:
    user.communicate(timeout=20)


def kill_nine(user: subprocess.Popen[str]) -> None:
    user.kill()
    leave(user)


def answer(database_url: str, question: str = "SELECT 1") -> Any:
    with psycopg.connect(database_url, connect_timeout=2) as connection:
        row = connection.execute(question.encode()).fetchone()
        assert row is not None
        return row[0]


def execute(database_url: str, *statements: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def pings(broker_url: str) -> bool:
    with redis.Redis.from_url(broker_url, socket_timeout=0.3, socket_connect_timeout=0.3) as client:
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


def is_alive(database_url: str) -> bool:
    try:
        return bool(answer(database_url) == 1)
    except psycopg.OperationalError:
        return False


def supervisor_of(directory: Path) -> int:
    state = read_state(StackPaths(directory))
    assert state is not None
    return state.supervisor


def server_pids(directory: Path) -> dict[str, int]:
    state = read_state(StackPaths(directory))
    return {} if state is None else {name: server.pid for name, server in state.servers.items()}


@pytest.fixture(scope="module")
def shared_directory() -> Iterator[Path]:
    """One for all tests, because initdb takes longer than most of them; outside pytest's, whose paths are long."""
    with tempfile.TemporaryDirectory(prefix="rival-stack-") as name:
        place = Path(name).resolve() / "dir"
        server = PostgresServer(place)
        server.start()
        server.stop()
        yield place


@pytest.fixture
def directory(shared_directory: Path) -> Iterator[Path]:
    """What a test leaves running there is a failure of that test."""
    yield shared_directory
    try:
        wait_until_nothing_runs_in(shared_directory)
    finally:
        for line in processes_of(shared_directory):
            os.kill(int(line.split()[0]), signal.SIGKILL)


@pytest.fixture
def postgres(directory: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(directory)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def broker(directory: Path) -> Iterator[BrokerServer]:
    server = BrokerServer(directory)
    server.start()
    yield server
    server.stop()


# The stack and its users


def test_a_new_directory_becomes_a_stack(tmp_path: Path) -> None:
    with open_stack(tmp_path / "new") as opened:
        assert answer(opened.database_url, "SELECT current_user || ' ' || current_database()") == "rival rival"
        assert answer(opened.database_url, "SHOW fsync") == "on"
        assert pings(opened.broker_url)
        assert opened.directory == tmp_path / "new"
    wait_until_nothing_runs_in(tmp_path)


def test_six_concurrent_starters_get_one_stack(directory: Path) -> None:
    users = [start_user(directory) for _ in range(6)]
    said = {first_line(user) for user in users}
    running = server_pids(directory)
    children = psutil.Process(supervisor_of(directory)).children()
    for user in users:
        leave(user)
    assert len(said) == 1
    assert json.loads(said.pop())
    assert {child.pid for child in children} == set(running.values())
    assert len(running) == 2


def test_a_second_process_shares_the_running_stack(directory: Path) -> None:
    with open_stack(directory) as opened:
        before = server_pids(directory)
        user = start_user(directory)
        assert json.loads(first_line(user)) == [opened.database_url, opened.broker_url]
        leave(user)
        assert server_pids(directory) == before
        assert is_alive(opened.database_url)


def test_it_runs_until_the_last_user_has_gone(directory: Path) -> None:
    first, second = open_stack(directory), open_stack(directory)
    first.close()
    first.close()
    time.sleep(0.3)  # several looks of the supervisor, at any of which it could have stopped
    assert is_alive(second.database_url)
    second.close()
    wait_until_nothing_runs_in(directory)


def test_a_user_who_comes_while_it_stops_gets_a_working_stack(directory: Path) -> None:
    for _ in range(3):
        open_stack(directory).close()
        with open_stack(directory) as opened:
            assert is_alive(opened.database_url)
            assert pings(opened.broker_url)


def test_data_survive_a_restart(directory: Path) -> None:
    with open_stack(directory) as opened:
        execute(opened.database_url, "CREATE TABLE kept AS SELECT 'still here' AS word")
    wait_until_nothing_runs_in(directory)
    with open_stack(directory) as opened:
        assert answer(opened.database_url, "SELECT word FROM kept") == "still here"


def test_given_urls_take_over(directory: Path) -> None:
    with open_stack(directory, database_url="postgresql://db/x", broker_url="redis://broker/1") as given:
        assert (given.database_url, given.broker_url) == ("postgresql://db/x", "redis://broker/1")
        assert not processes_of(directory)
    with open_stack(directory, database_url="postgresql://db/x") as half:
        assert half.database_url == "postgresql://db/x"
        assert pings(half.broker_url)
        assert set(server_pids(directory)) == {"broker"}


def test_what_a_later_user_misses_is_added_to_the_running_stack(directory: Path) -> None:
    with open_stack(directory, broker_url="redis://broker/1") as half:
        supervisor = supervisor_of(directory)
        with open_stack(directory) as whole:
            assert whole.database_url == half.database_url
            assert pings(whole.broker_url)
            assert supervisor_of(directory) == supervisor


# Deaths


def test_kill_nine_of_a_user_leaves_nothing_running(directory: Path) -> None:
    user = start_user(directory)
    database_url, _ = json.loads(first_line(user))
    assert is_alive(database_url)
    kill_nine(user)
    wait_until_nothing_runs_in(directory)


def test_kill_nine_of_the_supervisor_leaves_nothing_running(directory: Path) -> None:
    with open_stack(directory) as opened:
        threading.Thread(target=compute_forever, args=(opened.database_url,), daemon=True).start()
        wait_until(lambda: answer(opened.database_url, COMPUTING) == 1)
        os.kill(supervisor_of(directory), signal.SIGKILL)
        wait_until_nothing_runs_in(directory)
        with open_stack(directory) as again:
            assert is_alive(again.database_url)
            assert (again.database_url, again.broker_url) == (opened.database_url, opened.broker_url)


COMPUTING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'"


def compute_forever(database_url: str) -> None:
    """A backend that never waits does not notice by itself that its parent has gone."""
    with contextlib.suppress(psycopg.Error):
        execute(database_url, "DO $$ BEGIN LOOP END LOOP; END $$")


def test_a_server_that_dies_is_started_again_on_the_same_url(directory: Path) -> None:
    with open_stack(directory) as opened:
        before = server_pids(directory)
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_alive(opened.database_url) and pings(opened.broker_url))
        wait_until(lambda: len(server_pids(directory)) == 2)
        assert not set(server_pids(directory).values()) & set(before.values())


def test_a_server_that_keeps_dying_is_given_up() -> None:
    budget = RestartBudget()
    starts = [budget.next_start(died_at=100.0) for _ in range(ATTEMPTS + 1)]
    assert starts == [100.0, 100.2, 100.4, 100.8, 101.6, None]
    assert budget.next_start(died_at=100.0 + WITHIN) == 100.0 + WITHIN


def test_a_removed_directory_ends_its_stack(tmp_path: Path) -> None:
    directory = tmp_path / "removed"
    with open_stack(directory, database_url="postgresql://db/x") as opened:
        assert pings(opened.broker_url)
        shutil.rmtree(directory)
        wait_until_nothing_runs_in(directory)
        assert not directory.exists()


@on_linux
def test_frozen_leftovers_of_a_dead_owner_are_cleared_away(directory: Path) -> None:
    owner = start_user(directory, FREEZER)
    first = int(first_line(owner))
    kill_nine(owner)
    assert processes_of(directory)  # frozen, so nothing could make them end
    server = PostgresServer(directory)
    server.start()
    assert is_alive(server.url)
    assert server.pid != first
    assert not any(line.startswith(f"{first} ") for line in processes_of(directory))
    server.stop()


def test_a_stale_pid_file_that_names_a_living_process_is_not_an_obstacle(directory: Path) -> None:
    server = PostgresServer(directory)
    (server.data / "postmaster.pid").write_text(f"{os.getppid()}\n{server.data}\n0\n5432\n\n\n\nready\n")
    server.start()
    assert is_alive(server.url)
    server.stop()


def test_a_start_that_fails_says_why_and_a_later_one_succeeds(directory: Path) -> None:
    version = next(directory.glob("pg*")) / "PG_VERSION"
    right = version.read_text()
    version.write_text("9\n")
    with open_stack(directory, database_url="postgresql://db/x") as half:
        with pytest.raises(StackError, match="database files are incompatible with server"):
            open_stack(directory)
        assert pings(half.broker_url)
        version.write_text(right)
        with open_stack(directory) as complete:
            assert is_alive(complete.database_url)


def test_a_supervisor_that_cannot_start_says_why(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StackError, match=whole("The embedded stack did not start:\n")):
        open_stack(directory)


# The servers, one at a time


def test_the_broker_keeps_its_url_across_a_restart(broker: BrokerServer) -> None:
    url, first = broker.url, broker.pid
    broker.stop()
    assert not pings(url)
    broker.start()
    assert pings(url)
    broker.kill()
    assert not pings(url)
    broker.start()
    assert pings(url)
    assert broker.url == url
    assert broker.pid not in (None, first)


def test_the_broker_wants_its_password_and_keeps_it_secret(broker: BrokerServer) -> None:
    password, address = broker.url.removeprefix("redis://:").split("@")
    with redis.Redis.from_url(f"redis://{address}") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    assert stat.S_IMODE((broker.directory / "broker.json").stat().st_mode) == 0o600
    assert password not in " ".join(psutil.Process(broker.pid).cmdline())


def test_a_broker_whose_port_is_taken_moves(broker: BrokerServer, tmp_path: Path) -> None:
    shutil.copy(broker.directory / "broker.json", tmp_path)
    other = BrokerServer(tmp_path)
    assert other.url == broker.url
    other.start()
    assert other.url != broker.url
    assert pings(other.url)
    other.stop()


def test_a_broker_program_that_is_a_link_is_started_by_the_name_of_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Debian installs it: `redis-server` is a link to `redis-check-rdb`, which acts by the name it is called by."""
    real = find_broker()
    checker = f"{real.name.partition('-')[0]}-check-rdb"
    shutil.copy(real, tmp_path / checker)
    (tmp_path / "redis-server").symlink_to(checker)
    monkeypatch.setattr(binaries, "_package_folder", lambda package: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    server = BrokerServer(tmp_path / "data")
    server.start()
    try:
        assert find_broker() == tmp_path / "redis-server"
        assert pings(server.url)
        assert server.leftovers() == [server.pid]
    finally:
        server.stop()


def test_start_is_idempotent_and_a_second_owner_is_refused(postgres: PostgresServer) -> None:
    first = postgres.pid
    postgres.start()
    assert postgres.pid == first
    with pytest.raises(
        StackError, match=whole("Another process runs the postgres server in …: share it, with open_stack.")
    ):
        PostgresServer(postgres.directory).start()
    assert is_alive(postgres.url)


def test_a_killed_postgres_comes_back_with_what_was_committed(postgres: PostgresServer) -> None:
    url = postgres.url
    execute(url, "CREATE TABLE committed AS SELECT 'committed' AS word")
    postgres.kill()
    assert postgres.pid is None
    assert not is_alive(url)
    postgres.start()
    assert answer(url, "SELECT word FROM committed") == "committed"


def test_a_frozen_server_does_not_answer_until_it_is_thawed(postgres: PostgresServer, broker: BrokerServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.freeze()
        broker.freeze()
        assert not is_alive(postgres.url)
        assert not pings(broker.url)
        assert not answers_within(connection, 0.3)
        postgres.thaw()
        broker.thaw()
        assert is_alive(postgres.url)
        assert pings(broker.url)


def answers_within(connection: psycopg.Connection[Any], seconds: float) -> bool:
    done = threading.Event()

    def ask() -> None:
        connection.execute("SELECT 1")
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    return done.wait(seconds)


def test_a_frozen_server_can_be_stopped(postgres: PostgresServer, broker: BrokerServer) -> None:
    postgres.freeze()
    broker.freeze()
    postgres.stop()
    broker.stop()
    wait_until_nothing_runs_in(postgres.directory)
    assert not (postgres.data / "postmaster.pid").exists()  # it ended in good order, it was not killed


def test_a_server_outlives_the_thread_that_started_it(directory: Path) -> None:
    server = BrokerServer(directory)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.1)  # the signal would be there at once
    assert pings(server.url)
    server.stop()


def test_the_watcher_kills_a_child_whose_parent_has_gone() -> None:
    """What stands in for the kernel's death signal on macOS."""
    parent, child = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    spawn.watch_parent(parent.pid, child.pid)
    assert child.poll() is None
    parent.kill()
    parent.wait()
    assert child.wait(timeout=5) == -signal.SIGKILL


def test_a_long_path_gets_a_short_private_socket_directory(directory: Path, tmp_path: Path) -> None:
    place = tmp_path / ("long" * 25)
    place.mkdir()
    data = next(directory.glob("pg*"))
    shutil.copytree(data, place / data.name)
    server = PostgresServer(place)
    server.start()
    try:
        assert is_alive(server.url)
        assert len(os.fsencode(server.socket_directory / private_directories.SOCKET_NAME)) < 104
        assert stat.S_IMODE(server.socket_directory.stat().st_mode) == 0o700
    finally:
        server.stop()
        shutil.rmtree(server.socket_directory)


@as_root
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    os.chown(planted, NOBODY, NOBODY)
    with pytest.raises(
        StackError, match=whole("…planted exists and is not a directory of user 0: remove it, or set TMPDIR elsewhere.")
    ):
        private_directories.private_directory(planted, 0, 0)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(
        StackError, match=whole("…link exists and is not a directory of user 0: remove it, or set TMPDIR elsewhere.")
    ):
        private_directories.private_directory(link, 0, 0)


# Users


@as_root
def test_it_runs_as_an_ordinary_user() -> None:
    with tempfile.TemporaryDirectory(prefix="rival-nobody-") as name:
        directory = Path(name) / "dir"
        os.chown(name, NOBODY, NOBODY)
        user = start_user(directory, **ordinary_user())
        database_url, broker_url = json.loads(first_line(user))
        assert is_alive(database_url)
        assert pings(broker_url)
        assert {psutil.Process(pid).uids().real for pid in server_pids(directory).values()} == {NOBODY}
        leave(user)
        wait_until_nothing_runs_in(directory)


def ordinary_user(uid: int = NOBODY) -> dict[str, Any]:
    """How to run this Python as `uid`; one that is hidden in root's home needs the right to read it."""
    with contextlib.suppress(PermissionError):
        subprocess.run([sys.executable, "-V"], user=uid, check=True)
        return {"user": uid, "group": uid, "extra_groups": []}
    if shutil.which("setpriv") is None:
        pytest.skip(f"nobody cannot read {sys.executable}, and there is no setpriv to allow it")
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return {"prefix": ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *reading]}


@as_root
def test_where_namespaces_are_forbidden_root_becomes_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)  # the other user cannot even reach it
    server = PostgresServer(tmp_path, another_user())
    server.start()
    try:
        assert is_alive(server.url)
        execute(server.url, "CREATE TABLE kept ()")
        server.stop()
        server.start()
        assert answer(server.url, "SELECT to_regclass('kept') IS NOT NULL") is True
        assert psutil.Process(server.pid).uids().real == server.data.stat().st_uid != 0
        assert (tmp_path / server.data.name).resolve() == server.data
    finally:
        server.stop()
        shutil.rmtree(server.data.parent)


@as_root
def test_hidden_binaries_are_copied_to_where_the_other_user_can_read_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    package = find_postgres().bin.parents[1]
    for folder in package.parent.glob(f"{package.name}*"):
        (tmp_path / folder.name).symlink_to(folder)
    hidden = PostgresBinaries(tmp_path.joinpath(*find_postgres().bin.parts[-3:]))
    user = another_user()
    reachable = user.reachable(hidden)
    try:
        assert not reachable.bin.is_relative_to(tmp_path)
        said = subprocess.check_output([reachable.initdb, "--version"], user=user.uid, group=user.gid, text=True)
        assert re.fullmatch(r"initdb \(PostgreSQL\) [\d.]+( .*)?\n", said)
        assert reachable.bin.stat().st_uid == 0
        assert not stat.S_IMODE(reachable.bin.stat().st_mode) & 0o022
        assert user.reachable(hidden) == reachable
    finally:
        shutil.rmtree(reachable.bin.parents[3])


@as_root
@on_linux
def test_a_user_without_a_name_gets_one_for_postgres() -> None:
    """As in `docker run --user 12345`: initdb refuses a user that it finds in no list."""
    with tempfile.TemporaryDirectory(prefix="rival-nameless-") as name:
        directory = Path(name) / "dir"
        os.chown(name, 12345, 12345)
        user = start_user(directory, **ordinary_user(12345))
        database_url, _ = json.loads(first_line(user))
        assert is_alive(database_url)
        leave(user)
        wait_until_nothing_runs_in(directory)


# Databases


def test_a_template_copy_is_a_fresh_database(postgres: PostgresServer) -> None:
    template = create_database(postgres.url, "model")
    execute(template, "CREATE TABLE things (id int)", "INSERT INTO things VALUES (7)")
    one = create_database(postgres.url, "one", template="model")
    two = create_database(postgres.url.replace("postgresql:", "postgresql+psycopg:"), "two", template="model")
    assert two.startswith("postgresql+psycopg://rival@/two?")
    execute(one, "DELETE FROM things")
    assert answer(one, "SELECT count(*) FROM things") == 0
    assert answer(two.replace("+psycopg", ""), "SELECT count(*) FROM things") == 1
    assert answer(postgres.url, "SELECT to_regclass('things') IS NULL") is True


def test_a_database_is_dropped_while_others_are_connected(postgres: PostgresServer) -> None:
    url = create_database(postgres.url, 'odd "name"')
    with psycopg.connect(url):
        drop_database(postgres.url, 'odd "name"')
    assert not is_alive(url)
    drop_database(postgres.url, 'odd "name"')
