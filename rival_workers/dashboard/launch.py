"""Runs the dashboard as a process of its own: its login, its private directory, its address and its link. It refuses to
listen on a network without users or a proxy.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from rival_client.api.client import Rival
from rival_client.errors import ConfigurationError
from rival_workers.dashboard.asgi import application
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.forwarded import Forwarded
from rival_workers.dashboard.routes import TABLE
from rival_workers.dashboard.sessions import Proxy, Sessions, new_token
from rival_workers.dashboard.users import Users
from rival_workers.page_links import page_links
from rival_workers.settings import WorkerSettings

PORT = 8233
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Launch:
    settings: WorkerSettings
    listen: str = "127.0.0.1"
    port: int = PORT
    allowed: tuple[str, ...] = ()
    read_only: bool = False
    #: Its key, its users and their tokens.
    directory: Path = Path(".rival/dashboard")
    #: Addresses of a proxy, and how it says who the user is; None: it does not.
    trusted: tuple[str, ...] = ()
    proxy: Proxy | None = None

    @contextmanager
    def opened(self, rival: Rival) -> Iterator[Server]:
        """Bound before the link is known, so that the link is right."""
        users = Users(self.directory / "users.toml")
        wanted = Address(self.listen, self.port)
        _require_login(wanted, users, self.proxy)
        token = new_token() if wanted.is_local and self.proxy is None else None
        with listening(wanted) as opened:
            address = Address(self.listen, opened.getsockname()[1])
            sessions = Sessions(private_key(self.directory), token=token, users=users, proxy=self.proxy)
            board = Board(rival, sessions, self._options(address))
            board.bulks.watch()
            try:
                yield Server(_link(address, token), application(board, TABLE), opened, ending=board.end_work)
            finally:
                board.close()

    def _options(self, address: Address) -> Options:
        words = tuple(word for word in self.settings.redact.split(",") if word.strip())
        flower = (self.settings.flower_url or "").rstrip("/") or None
        private = () if self.proxy is None else self.proxy.headers
        return Options(
            hosts=address.hosts(self.allowed),
            read_only=self.read_only,
            redact=words,
            links=page_links(self.settings.dashboard_links),
            flower=flower,
            settings=self.settings,
            forwarded=Forwarded(self.trusted, private) if self.trusted else None,
            database_url=self.settings.dashboard_database_url,
        )


def _require_login(address: Address, users: Users, proxy: Proxy | None) -> None:
    if not address.is_local and not users.names and proxy is None:
        raise ConfigurationError(
            f"The dashboard does not listen at {address.host} without a login: add a user first "
            "(`rival dashboard user add NAME --role operator`), let a proxy log users in (--trusted-proxy, "
            "--user-header), or let it listen on 127.0.0.1 only."
        )


def _link(address: Address, token: str | None) -> str:
    return address.url if token is None else f"{address.url}#token={token}"


# -- address and server -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def hosts(self, allowed: tuple[str, ...]) -> tuple[str, ...]:
        own = (f"[{self.host}]" if ":" in self.host else self.host,)
        local = ("127.0.0.1", "localhost", "[::1]") if self.is_local else ()
        return tuple(name.lower() for name in (*own, *local, *allowed) if name not in ("0.0.0.0", "[::]"))


def private_key(directory: Path) -> bytes:
    """The key that signs sessions: random, made at the first start, readable by its owner only."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = directory / "key"
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = file.read_bytes()
        if len(key) < 32:
            raise ConfigurationError(f"{file} is not a key: delete it, and a new one is made.") from None
        return key
    key = secrets.token_bytes(32)
    with os.fdopen(handle, "wb") as opened:
        opened.write(key)
    return key


def listening(address: Address) -> socket.socket:
    """Bound before anything is printed, so that the printed address is right."""
    try:
        [(family, kind, proto, _, place), *_] = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        opened = socket.socket(family, kind, proto)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(128)
    except OSError as error:
        raise ConfigurationError(
            f"The dashboard cannot listen at {address.host}:{address.port} ({error.strerror}). Another one may be "
            "running there already; choose another port with --port."
        ) from error
    return opened


class _Uvicorn(uvicorn.Server):
    def __init__(self, configuration: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(configuration)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._ending)
        await super().shutdown(sockets)


class Server:
    """`run` serves until SIGINT or SIGTERM, `in_background` while its block runs. `ending` ends open streams: a server
    that stops would wait for them, and then cut them off with an error in its log. What follows `run` is not executed
    after a SIGTERM.
    """

    def __init__(self, link: str, app: ASGIApp, opened: socket.socket, ending: Callable[[], None]) -> None:
        self.link, self._opened = link, opened
        configuration = uvicorn.Config(
            app,
            # It bounds the head of a request, which httptools does not.
            http="h11",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            lifespan="off",
            ws="none",
        )
        self._server = _Uvicorn(configuration, ending)

    def run(self) -> None:
        self._server.run(sockets=[self._opened])

    @contextmanager
    def in_background(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, name="rival-dashboard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.should_exit = True
            thread.join(timeout=5)
