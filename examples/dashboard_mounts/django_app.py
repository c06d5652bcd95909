"""The dashboard below a Django application that is served by ASGI: at /rival."""

from typing import Any

from rival_client import Rival
from rival_workers.dashboard import Identity, dashboard, mounted


def authorize(scope: dict[str, Any]) -> Identity | None:
    """The user that Django has logged in: put the middleware of sessions and users around `application`."""
    user = scope.get("user")
    if user is None or not user.is_staff:
        return None
    return Identity(user.get_username(), "admin" if user.is_superuser else "operator")


def make_application(django_application: Any, rival: Rival) -> Any:
    """In your asgi.py: `application = make_application(get_asgi_application(), Rival())`."""
    return mounted(django_application, "/rival", dashboard(rival, authorize=authorize))
