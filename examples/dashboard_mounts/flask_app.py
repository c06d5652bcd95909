"""The dashboard below a Flask application, or any WSGI application: at /rival. Needs the package a2wsgi."""

from typing import Any

from a2wsgi import ASGIMiddleware
from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from rival_client import Rival
from rival_workers.dashboard import Identity, Options, dashboard


def authorize(scope: dict[str, Any]) -> Identity | None:
    headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
    user = headers.get("x-user")
    return Identity(user, "viewer") if user else None


def make_app(rival: Rival) -> Flask:
    """Without streams: each would hold a thread of the server."""
    made = Flask(__name__)
    board = dashboard(rival, authorize=authorize, options=Options(hosts=None, live="poll"))
    made.wsgi_app = DispatcherMiddleware(made.wsgi_app, {"/rival": ASGIMiddleware(board)})
    return made
