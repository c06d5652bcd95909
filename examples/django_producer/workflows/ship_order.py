"""What happens to an order once it is written."""

from pydantic import BaseModel


class Input(BaseModel):
    order: int
    total: int


def pack(input: Input) -> dict[str, int]:
    return {"parcel": input.order}


def ship(last_step) -> dict[str, object]:
    return {"shipped": last_step.result["parcel"]}


steps = [pack, ship]
