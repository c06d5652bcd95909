"""The route that describes the API, from the route table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from rival_client import __version__
from rival_workers.dashboard.problem_json import PROBLEM
from rival_workers.dashboard.route import Call, Route

_REFERENCES = "#/components/schemas/{model}"
#: Status of a problem -> when there is one.
_REFUSALS = {
    400: "The query or the body does not fit: `errors` has the places",
    401: "There is no login, or it is not valid any more",
    403: "The role is not enough, a value is hidden, or the request comes from another site",
    404: "The run, workflow or whatever is named does not exist",
    409: "It is not possible with what is there as it is",
    413: "A value or the body is too large",
    421: "The dashboard does not answer to this host name",
    422: "An argument or an input is wrong: `errors` has the places",
    500: "An unexpected error: the log of the dashboard has it",
    503: "The database does not answer, or the server is busy: live updates came too late, or have too many viewers",
    504: "The search took too long: narrow it",
}
_OF_WRITES = {
    408: "The body did not arrive in time",
    412: "The run has changed since the preview that `If-Match` names",
    415: "The body is not JSON",
    429: "The topic is full, or too many logins have failed",
}
#: These name when to ask again.
_ASK_AGAIN = (429, 503)
_SECONDS = {"description": "Seconds", "schema": {"type": "integer"}}


def describe(call: Call) -> dict[str, Any]:
    from rival_workers.dashboard.routes import TABLE  # which has this route, too

    return description(TABLE, call.base + "api/v1")


def description(table: Sequence[Route], base: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {"Problem": PROBLEM}
    paths: dict[str, Any] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rival", "version": __version__},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _name(route),
        "description": f"Role: {route.role}.",
        "parameters": [*_in_path(route), *_in_query(route, schemas)],
        "responses": {**{str(one): _answer(route, schemas) for one in _successes(route)}, **_problems(route)},
        "security": [] if route.role == "none" else [{"bearer": []}],
    }
    if route.body is not None:
        content = {"application/json": {"schema": _schema(route.body, schemas)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _name(route: Route) -> str:
    """`getRunsRunIdSteps`"""
    words = re.findall(r"[A-Za-z0-9]+", route.path)
    return route.method.lower() + "".join(word[0].upper() + word[1:] for word in words)


def _in_path(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1, "pattern": "^([A-Za-z0-9._-]|~[0-9A-F]{2})+$"}
    names = re.findall(r"\{(\w+)\}", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": text} for name in names]


def _in_query(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    schema = route.query.model_json_schema(ref_template=_REFERENCES)
    schemas |= schema.pop("$defs", {})
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": its}
        for name, its in schema.get("properties", {}).items()
    ]


def _successes(route: Route) -> tuple[int, ...]:
    """A dry run creates nothing."""
    has_dry_run = route.body is not None and "dry_run" in route.body.model_fields
    return (200, 201) if route.status == 201 and has_dry_run else (route.status,)


def _answer(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.status == 204:
        return {"description": "Done"}
    if route.answers is None:
        return {"description": "A file"}
    return {"description": "Done", "content": {"application/json": {"schema": _schema(route.answers, schemas)}}}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema(ref_template=_REFERENCES)
    schemas |= schema.pop("$defs", {})
    return schema


def _problems(route: Route) -> dict[str, Any]:
    """Every status with which a request of the route may be refused."""
    statuses = {**_REFUSALS, **(_OF_WRITES if route.writes else {})}
    return {str(status): _problem(status, statuses[status]) for status in sorted(statuses)}


def _problem(status: int, description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    found: dict[str, Any] = {"description": description, "content": {"application/problem+json": {"schema": schema}}}
    return found | {"headers": {"Retry-After": _SECONDS}} if status in _ASK_AGAIN else found


ROUTES = (Route("GET", "/openapi.json", "viewer", describe, "Describe the API"),)
