"""Routes of logins: log in, log out, and the identity and role of the caller."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_workers.dashboard.audit import audit_login
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.roles import ADMINS_BULK, OPERATORS_BULK, Identity
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.sessions import LIFETIME


class Login(Form):
    token: str | None = Field(default=None, max_length=500)
    name: str | None = Field(default=None, max_length=500)
    password: str | None = Field(default=None, max_length=500)


def me(call: Call) -> dict[str, Any]:
    return about(call, call.who)


def about(call: Call, who: Identity | None) -> dict[str, Any]:
    board, options = call.board, call.board.options
    return {
        "name": who.name if who else None,
        "role": who.role if who else None,
        "read_only": options.read_only,
        "login": board.sessions.ways,
        "features": _features(call, who),
        "links": [{"name": name, "template": template} for name, template in options.links.items()],
        "flower": options.flower,
        "version": board.version,
        "database": "postgresql" if board.database.is_postgres else "sqlite",
        "poll": 2.0,
    }


def _features(call: Call, who: Identity | None) -> dict[str, Any]:
    may = call.board.may
    is_admin, is_operator = may(who, "admin"), may(who, "operator")
    return {
        "live": call.board.options.live,
        "reveal": is_admin,
        "shares": is_admin,
        "start": is_operator,
        "verbs": is_operator,
        "bulk_limit": ADMINS_BULK if is_admin else OPERATORS_BULK if is_operator else 0,
        "schedules": is_admin,
        "recover": is_admin,
    }


def log_in(call: Call) -> Answer:
    given: Login = call.body
    if (given.token is None) == (given.name is None):
        raise Refused(422, "InvalidArgument", "Give either `token`, or `name` and `password`.")
    who, cookie = call.board.sessions.log_in(call.address, given.token, given.name, given.password)
    audit_login(call, who, "token" if given.token is not None else "password")
    return Answer(about(call, who), headers={"set-cookie": _cookie(call, cookie, LIFETIME)})


def log_out(call: Call) -> Answer:
    return Answer(None, 204, {"set-cookie": _cookie(call, "", 0)})


def _cookie(call: Call, content: str, seconds: int) -> str:
    scheme, _, rest = call.base.partition("://")
    path = "/" + rest.partition("/")[2]
    secure = "; Secure" if scheme == "https" else ""
    name = call.board.sessions.cookie
    return f"{name}={content}; Max-Age={seconds}; Path={path}; HttpOnly; SameSite=Strict{secure}"


ROUTES = (
    Route("GET", "/me", "none", me, "Say who asks and what that person may do"),
    Route("POST", "/session", "none", log_in, "Log in", body=Login, is_read=True),
    Route("DELETE", "/session", "none", log_out, "Log out", is_read=True, status=204),
)
