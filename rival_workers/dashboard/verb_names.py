"""The operators' verbs: their names in paths and commands, and the arguments that each needs."""

from __future__ import annotations

from rival_workers.dashboard.problem_json import Refused

#: Verb of the client -> its name in paths and commands.
VERBS = {
    "retry": "retry",
    "rewind": "rewind",
    "skip": "skip",
    "set_result": "set-result",
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
}
NEED_STEP = ("rewind", "skip", "set_result")
NEED_REASON = ("skip", "set_result")


def refuse_incomplete(verb: str, step: str | None, reason: str | None) -> None:
    given = {"step": (step, NEED_STEP), "reason": (reason, NEED_REASON)}
    missing = [name for name, (its, verbs) in given.items() if verb in verbs and not its]
    if missing:
        problems = [{"pointer": f"/{name}", "message": "is needed"} for name in missing]
        raise Refused(422, "InvalidArgument", f"{VERBS[verb]} needs {' and '.join(missing)}.", errors=problems)
