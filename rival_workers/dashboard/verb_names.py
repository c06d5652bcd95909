"""The operators' verbs: their names in paths and commands, and the arguments that each needs."""

from __future__ import annotations

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
