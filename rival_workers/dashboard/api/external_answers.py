"""Routes that answer an external step by its token: complete it, or fail it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.completion_token import CompletionToken
from rival_workers.dashboard.commands import as_json, call_text, commands, shell_text
from rival_workers.dashboard.route import Call, Confirmed, Route


class Completion(Confirmed):
    token: str = Field(max_length=4000)
    result: Any = None


class Failure(Confirmed):
    token: str = Field(max_length=4000)
    message: str = Field(min_length=1, max_length=4000)
    retry: bool = False


def complete(call: Call) -> dict[str, Any]:
    given: Completion = call.body
    step = CompletionToken.parse(given.token)
    shell = shell_text("complete", given.token, as_json(given.result))
    python = call_text("complete_step", given.token, given.result)
    body = {"token": given.token, "result": given.result}
    texts = commands(call.base, "external/complete", shell, python, body)
    if given.dry_run:
        return {"accepted": None, "run": step.run_id, "step": step.path, "commands": texts}
    accepted = call.board.rival.complete_step(given.token, given.result, by=call.by)
    return {"accepted": accepted, "run": step.run_id, "step": step.path, "commands": texts}


def fail(call: Call) -> dict[str, Any]:
    given: Failure = call.body
    step = CompletionToken.parse(given.token)
    shell = shell_text("fail", given.token, given.message, retry=given.retry)
    python = call_text("fail_step", given.token, given.message, retry=given.retry or None)
    body = {"token": given.token, "message": given.message, "retry": given.retry}
    texts = commands(call.base, "external/fail", shell, python, body)
    if given.dry_run:
        return {"accepted": None, "run": step.run_id, "step": step.path, "commands": texts}
    accepted = call.board.rival.fail_step(given.token, given.message, retry=given.retry, by=call.by)
    return {"accepted": accepted, "run": step.run_id, "step": step.path, "commands": texts}


ROUTES = (
    Route(
        "POST",
        "/external/complete",
        "operator",
        complete,
        "Complete an external step",
        body=Completion,
        does="complete",
    ),
    Route("POST", "/external/fail", "operator", fail, "Fail an external step", body=Failure, does="fail"),
)
