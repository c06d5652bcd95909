"""A dashboard over an `Inline`, asked in the same process as a browser would ask it."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.testclient import TestClient

from rival_workers.dashboard.asgi import application
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.routes import TABLE
from rival_workers.dashboard.sessions import Sessions
from rival_workers.dashboard.users import Users
from tests.support.inline import Inline

TOKEN = "the-token-of-this-test"
BROWSER = {"sec-fetch-site": "same-origin"}


class Site:
    """`get` and `post` send what the pages send, logged in with the token."""

    def __init__(self, inline: Inline, *, users: Users | None = None, options: Options | None = None) -> None:
        self.inline = inline
        self.sessions = Sessions(b"k" * 32, token=TOKEN, users=users)
        self.board = Board(inline.rival, self.sessions, options)
        self.app = application(self.board, TABLE)
        self.browser = self.client()
        self.log_in(token=TOKEN)

    def client(self, **headers: str) -> TestClient:
        return TestClient(self.app, "http://127.0.0.1", headers={**BROWSER, **headers}, raise_server_exceptions=False)

    def log_in(self, **given: str) -> httpx.Response:
        return self.browser.post("/api/v1/session", json=given)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.browser.request(method, f"/api/v1/{path}", **more)

    def get(self, path: str, **query: Any) -> Any:
        return self._answer(self.ask("GET", path, params=query))

    def post(self, path: str, **body: Any) -> Any:
        return self._answer(self.ask("POST", path, json=body))

    def audited(self) -> list[dict[str, Any]]:
        """What people have done, without their logins."""
        return [one for one in self.get("audit")["items"] if one["what"] != "log_in"]

    @staticmethod
    def _answer(found: httpx.Response) -> Any:
        assert found.is_success, f"{found.status_code}: {found.text}"
        return found.json()

    def close(self) -> None:
        self.browser.close()
        self.board.close()
