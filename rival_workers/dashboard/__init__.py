"""The dashboard: an HTTP API over a client, and the files of its pages. Needs the extra `dashboard`."""

from __future__ import annotations

import secrets

from starlette.types import ASGIApp, Receive, Scope, Send

from rival_client.api.client import Rival
from rival_client.errors import InvalidArgument
from rival_workers.dashboard.asgi import application
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.routes import TABLE
from rival_workers.dashboard.sessions import Authorize, Sessions

#: Bytes of a key that signs.
_KEY = 32

__all__ = ["Identity", "Options", "dashboard", "mounted"]


def dashboard(
    rival: Rival, *, authorize: Authorize, options: Options | None = None, key: bytes | None = None
) -> ASGIApp:
    """The dashboard as an ASGI application, to be mounted in another one. `authorize` gets the ASGI scope of a request
    and returns who asks, or None; the host names are the other application's matter. `key` signs links to runs: give
    all processes the same; None: links are valid in this process only.
    """
    if key is not None and not (isinstance(key, bytes) and len(key) >= _KEY):
        raise InvalidArgument("key", f"give at least {_KEY} random bytes, and the same to each process")
    sessions = Sessions(key or secrets.token_bytes(_KEY), authorize=authorize)
    board = Board(rival, sessions, options or Options(hosts=None))
    app = application(board, TABLE)

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        # With the first request, because a server may load the application before it forks.
        board.bulks.watch()
        await app(scope, receive, send)

    return watching


def mounted(app: ASGIApp, path: str, board: ASGIApp) -> ASGIApp:
    """An ASGI application (Django's) with the dashboard at a path below it."""

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        is_below = scope["type"] == "http" and (scope["path"] == path or scope["path"].startswith(f"{path}/"))
        if not is_below:
            await app(scope, receive, send)
            return
        root = scope.get("root_path", "") + path
        await board({**scope, "root_path": root}, receive, send)

    return dispatch
