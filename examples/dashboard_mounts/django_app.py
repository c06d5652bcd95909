"""The dashboard below a Django application that is served by ASGI: at /rival."""

from io import BytesIO
from typing import Any

from django.contrib.auth import get_user
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpResponse

from rival_client import Rival
from rival_workers.dashboard import Identity, dashboard, mounted


def authorize(scope: dict[str, Any]) -> Identity | None:
    """The user of Django's session. It is called in a thread, so it may ask the database."""
    request = ASGIRequest(scope, BytesIO())
    SessionMiddleware(lambda _: HttpResponse()).process_request(request)
    try:
        user = get_user(request)
        if not (user.is_active and user.is_staff):
            return None
        return Identity(user.get_username(), "admin" if user.is_superuser else "operator")
    finally:
        close_old_connections()


def make_application(django_application: Any, rival: Rival) -> Any:
    """In your asgi.py: `application = make_application(get_asgi_application(), Rival())`."""
    return mounted(django_application, "/rival", dashboard(rival, authorize=authorize))
