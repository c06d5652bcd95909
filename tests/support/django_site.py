"""A Django application with users and sessions in a database, with the dashboard of the example below it, served by
uvicorn. `python -m tests.support.django_site FOLDER` prints what users in each role get, as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import Any

import django
import httpx
import uvicorn
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

from rival_workers import Registry, embedded, step
from rival_workers.definition.define import define_workflow
from tests.support.threads import join_all

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dashboard_mounts" / "django_app.py"
SAME = {"sec-fetch-site": "same-origin"}
urlpatterns = [path("shop", lambda request: HttpResponse("the shop"))]


def configure(folder: Path) -> None:
    settings.configure(
        SECRET_KEY="of this test",
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["127.0.0.1"],
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "django.db")}},
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def cookies() -> dict[str, dict[str, str]]:
    """Of logged in users, by name."""
    from django.contrib.auth.models import User
    from django.test import Client

    found: dict[str, dict[str, str]] = {"nobody": {}}
    roles = {"customer": {}, "staff": {"is_staff": True}, "boss": {"is_staff": True, "is_superuser": True}}
    for name, flags in roles.items():
        client = Client()
        client.force_login(User.objects.create(username=name, **flags))
        found[name] = {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
    return found


@contextmanager
def served(app: Any) -> Iterator[str]:
    opened = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{opened.getsockname()[1]}/"
    server.should_exit = True
    join_all([thread])


def said(url: str, users: dict[str, dict[str, str]]) -> dict[str, Any]:
    clients = {name: httpx.Client(base_url=url, headers=SAME, cookies=its, timeout=30) for name, its in users.items()}
    order = {"workflow": "greet", "input": {}}
    found: dict[str, Any] = {}
    for name, client in clients.items():
        runs, start = client.get("rival/api/v1/runs"), client.post("rival/api/v1/runs", json=order)
        found[name] = [runs.status_code, start.status_code]
    found["roles"] = [client.get("rival/api/v1/me").json()["role"] for client in clients.values()]
    found["stream"] = [stream_status(clients[name]) for name in ("customer", "staff")]
    found["shell"] = '<base href="/rival/">' in clients["nobody"].get("rival/runs").text
    found["other"] = [clients["nobody"].get(one).status_code for one in ("shop", "rivals")]
    return found


def stream_status(client: httpx.Client) -> int:
    with client.stream("GET", "rival/api/v1/stream?fleet=1") as answer:
        return answer.status_code


def main() -> None:
    configure(Path(sys.argv[1]))
    from django.core.asgi import get_asgi_application

    users = cookies()
    registry = Registry()
    registry.add(define_workflow("greet", [step(lambda: "hello", name="say")]))
    with embedded(registry=registry) as rival:
        app = run_path(str(EXAMPLE))["make_application"](get_asgi_application(), rival)
        with served(app) as url:
            print(json.dumps(said(url, users)))


if __name__ == "__main__":
    main()
