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
        "responses": {str(route.status): _answer(route, schemas), "default": _problem()},
        "security": [] if route.role == "none" else [{"bearer": []}],
    }
    if route.body is not None:
        content = {"application/json": {"schema": _schema(route.body, schemas)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _name(route: Route) -> str:
    return route.method.lower() + re.sub(r"[^A-Za-z]+(\w)", lambda found: found[1].upper(), "/" + route.path)


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


def _problem() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "Refused", "content": {"application/problem+json": {"schema": schema}}}


ROUTES = (Route("GET", "/openapi.json", "viewer", describe, "Describe the API"),)
