"""The dashboard below a FastAPI (or Starlette) application: `uvicorn fastapi_app:app`, then /rival."""

from typing import Any

from fastapi import FastAPI

from rival_client import Rival
from rival_workers.dashboard import Identity, dashboard


def authorize(scope: dict[str, Any]) -> Identity | None:
    """The user that your application has logged in; here, a header that a proxy sets."""
    headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
    user = headers.get("x-user")
    return Identity(user, "operator") if user else None


def make_app(rival: Rival) -> FastAPI:
    made = FastAPI()
    made.mount("/rival", dashboard(rival, authorize=authorize))
    return made


def app() -> FastAPI:
    """For `uvicorn --factory fastapi_app:app`."""
    return make_app(Rival())
