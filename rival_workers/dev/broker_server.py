"""A real Valkey or Redis for development: on loopback, with a password, without persistence."""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import signal
import socket
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from rival_workers.dev.binaries import find_broker
from rival_workers.dev.errors import StackError
from rival_workers.dev.processes import processes_in
from rival_workers.dev.server import Server
from rival_workers.dev.spawn import Launch
from rival_workers.dev.stack_files import write_atomically
from rival_workers.dev.waiting import wait_until

# Below the kernel's range of ports for outgoing connections, so that none of them takes the port while the broker is
# down.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Address:
    """Chosen once per directory, so that the URL stays the same across restarts."""

    port: int
    password: str


class BrokerServer(Server):
    """Keeps its port and its password in `<directory>/broker.json`, readable only by the owner."""

    name = "broker"
    stop_signals = ((signal.SIGTERM, 3.0),)

    @property
    def url(self) -> str:
        return f"redis://:{self._address.password}@127.0.0.1:{self._address.port}/0"

    @property
    def _address(self) -> Address:
        try:
            return Address(**json.loads(self._address_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return self._save_address(Address(free_port(), secrets.token_urlsafe(24)))

    def prepare(self) -> None:
        self._work_directory.mkdir(mode=0o700, exist_ok=True)
        if not wait_until(lambda: is_free(self._address.port), timeout=1.0):
            self._save_address(Address(free_port(), self._address.password))

    def launch(self, log: IO[bytes]) -> Launch:
        # The configuration is passed on standard input: as an argument, `ps` would show the password to all users.
        return Launch([str(self._program), "-"], log, cwd=self._work_directory, stdin=self._configuration().encode())

    def leftovers(self) -> list[int]:
        return processes_in(self._work_directory, self._program.name)

    def answers(self) -> bool:
        address = self._address
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", address.port), 2.0) as line:
            line.sendall(f"AUTH {address.password}\r\nPING\r\n".encode())
            return b"+PONG" in _read_lines(line, 2)
        return False

    @cached_property
    def _program(self) -> Path:
        return find_broker()

    @cached_property
    def _work_directory(self) -> Path:
        return self.directory.resolve() / "broker"

    @property
    def _address_file(self) -> Path:
        return self.directory / "broker.json"

    def _save_address(self, address: Address) -> Address:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._address_file, asdict(address))
        return address

    def _configuration(self) -> str:
        lines = [
            "bind 127.0.0.1",
            f"port {self._address.port}",
            f"requirepass {self._address.password}",
            'save ""',
            "appendonly no",
            "daemonize no",
        ]
        return "\n".join(lines) + "\n"


def free_port() -> int:
    for port in random.sample(PORTS, 200):
        if is_free(port):
            return port
    raise StackError(f"No free port between {PORTS.start} and {PORTS.stop} for the embedded broker: give a broker URL.")


def is_free(port: int) -> bool:
    with socket.socket() as attempt:
        # Like the server: ignore closed connections of an earlier server on this port.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _read_lines(line: socket.socket, count: int) -> bytes:
    received = b""
    while received.count(b"\n") < count:
        part = line.recv(256)
        if not part:
            break
        received += part
    return received
