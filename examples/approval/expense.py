"""An expense waits for a decision, but not forever: after the deadline the boss is notified."""

from datetime import timedelta

from pydantic import BaseModel

from rival_workers import branch, step, wait_event_step

name = "expense"
LIMIT = 50
DEADLINE = timedelta(days=2)


class Input(BaseModel):
    number: str
    amount: int


def needs_approval(input: Input) -> bool:
    return input.amount > LIMIT


def ask(input: Input, log) -> None:
    log.info("please decide", expense=input.number, amount=input.amount)


def number(input: Input) -> str:
    return input.number


def is_undecided(steps) -> bool:
    return steps.decision.status != "completed"


def escalate(input: Input, log) -> dict:
    log.warning("no decision before the deadline", expense=input.number)
    return {"approved": False, "by": None, "boss": "notified"}


def take_decision(steps) -> dict:
    return steps.decision.result


def pay(steps, input: Input) -> dict:
    asked = steps["approval?"].result
    if asked is not None and not asked["approved"]:
        return {"paid": 0, "because": asked}
    return {"paid": input.amount, "because": asked or "small"}


steps = [
    branch(
        "approval?",
        when=needs_approval,
        then=[
            ask,
            wait_event_step("expense.decided", name="decision", key=number, timeout=DEADLINE, on_timeout="continue"),
            branch("late?", when=is_undecided, then=[escalate], otherwise=[take_decision]),
        ],
    ),
    step(pay, max_attempts=3),
]
