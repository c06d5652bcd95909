"""An order: price it, see what is in stock, take the payment, then ship it, or put it on the waiting list."""

from pydantic import BaseModel

from rival_workers import StepError, Steps, branch, parallel, step, workflow

description = "Fulfil an order"

PRICES = {"axe": 40, "gloves": 15, "rope": 25}
STOCK = {"axe": 10, "gloves": 3, "rope": 0}
MOST_IN_A_PARCEL = 5


class Input(BaseModel):
    customer: str
    lines: dict[str, int]


def price(input: Input) -> dict[str, int]:
    unknown = sorted(set(input.lines) - set(PRICES))
    if unknown:
        raise StepError(f"we do not sell {', '.join(unknown)}")
    return {"total": sum(PRICES[name] * count for name, count in input.lines.items())}


def everything_is_there(input: Input) -> bool:
    return all(STOCK[name] >= count for name, count in input.lines.items())


def bill(input: Input, steps: Steps) -> dict[str, object]:
    """What the payment is given as its input."""
    return {"customer": input.customer, "amount": steps.price.result["total"]}


def pick(input: Input) -> list[str]:
    return sorted(input.lines)


def put_back(result: list[str]) -> dict[str, object]:
    return {"back on the shelf": result}


def book_carrier(input: Input, steps: Steps) -> dict[str, object]:
    if sum(input.lines.values()) > MOST_IN_A_PARCEL:
        raise StepError(f"no carrier takes more than {MOST_IN_A_PARCEL} things")
    return {"parcel": f"parcel of {', '.join(steps.pick.result)}"}


def write_invoice(steps: Steps) -> dict[str, object]:
    return {"invoice": f"{steps.price.result['total']} €, {steps.payment.result['payment']}"}


def put_on_waiting_list(input: Input) -> dict[str, object]:
    return {"waiting": sorted(name for name, count in input.lines.items() if STOCK[name] < count)}


def notify_support(input: Input, error: dict[str, object], log) -> None:
    log.error("an order has failed", customer=input.customer, why=error["message"])


on_error = notify_support
steps = [
    price,
    branch(
        "in-stock?",
        when=everything_is_there,
        then=[
            workflow("./payment.py", name="payment", input=bill),
            step(pick, compensate=put_back),
            parallel("send", [step(book_carrier, max_attempts=3), write_invoice]),
        ],
        otherwise=[put_on_waiting_list],
    ),
]
