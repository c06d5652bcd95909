"""A long job. The worker that runs `encode` is killed in the middle; another one takes over."""

import time

from pydantic import BaseModel

from rival_workers import RunInfo, StepLog, StepState, StepView

description = "Fetch a video, encode it, publish it"


class Input(BaseModel):
    video: str
    seconds: float = 4.0


def fetch(input: Input) -> dict[str, object]:
    return {"file": f"{input.video}.mov", "megabytes": 870}


def encode(input: Input, run: RunInfo, state: StepState, log: StepLog) -> dict[str, object]:
    log.info("encoding", video=input.video, attempt=run.attempt)
    time.sleep(input.seconds)
    state.description = f"encoded {input.video}"
    return {"file": f"{input.video}.mp4", "megabytes": 95}


def publish(last_step: StepView) -> dict[str, str]:
    return {"url": f"https://videos.example/{last_step.result['file']}"}


steps = [fetch, encode, publish]
