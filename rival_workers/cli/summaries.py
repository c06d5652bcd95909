"""What `rival --help` says of each command, so that it need not load them all: a test compares."""

from __future__ import annotations

SUMMARIES = {
    "run": "Start a run of workflow NAME with the input JSON (or @FILE, or - for standard input).",
    "wait": "Wait until RUN has ended.",
    "ls": "List runs, the newest first.",
    "show": "Show RUN: its steps, attempts, result and the tracebacks of what failed.",
    "tree": "Show RUN in its family: from its root ancestor down, with the step that has started each.",
    "workflows": "List the registered workflows.",
    "cancel": "Cancel RUN, all its open steps and its child runs; or all open runs that a filter chooses.",
    "retry": "Let a failed or cancelled RUN go on where it has stopped; or all failed runs that a filter chooses.",
    "rewind": "Let RUN go on from STEP again, whatever became of it; what came after it is undone.",
    "pause": "Let RUN start nothing new; what is running ends.",
    "resume": "Let a paused RUN go on; or all paused runs that a filter chooses.",
    "skip": "Let an open STEP of RUN, or the one that it has stopped at, end as skipped.",
    "set-result": "Let an open STEP of RUN, or the one that it has stopped at, end with the result "
    "JSON (or @FILE, or -).",
    "logs": "Print what the steps of RUN have logged, the oldest first.",
    "plan": "Draw the plan of workflow NAME, as workers have registered it, or as it stands "
    "in the files of --workflows.",
    "emit": "Send an event with the payload JSON (or @FILE, or - for standard input) to the runs that wait for TOPIC.",
    "events": "List events, newest first; and tell which topics keep nearly as many as they may.",
    "schedule": "Start runs by the clock.",
    "recover": "Have all that waits for a worker rung for anew, and say what there is to recover.",
    "complete": "Complete the external step that gave out TOKEN, with the result JSON (or @FILE, "
    "or - for standard input).",
    "fail": "Fail the external step that gave out TOKEN.",
    "worker": "Join the fleet: run steps of the given workflows until Ctrl-C or SIGTERM.",
    "dev": "Keep a Postgres, a Redis and some workers up for your own workflows, until Ctrl-C.",
    "flower": "Watch every attempt in Flower, beside `rival dev` or on RIVAL_BROKER_URL.",
    "doctor": "Check database, schema, broker, workers, clocks and settings.",
    "db": "The database's schema.",
    "completion": "Print the completion script of SHELL: bash, zsh or fish.",
    "demo": "See durable runs live: retries, a timeout, a cancel, and a worker killed in the middle of a step.",
}
