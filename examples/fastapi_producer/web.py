"""Orders over HTTP. An order's run id is the caller's idempotency key: a request that is sent twice is one order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse

from rival_client import AsyncRival, InvalidInput, RunConflict, RunNotFound, WaitTimeout

WORKFLOW = "order"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncRival() as rival:
        app.state.rival = rival
        yield


app = FastAPI(lifespan=lifespan)


def rival_of(request: Request) -> AsyncRival:
    rival: AsyncRival = request.app.state.rival
    return rival


@app.post("/orders", status_code=202)
async def place(
    request: Request, order: dict[str, Any], idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, str]:
    """The input is checked against the workflow's schema, which the workers have registered."""
    run_id = f"order-{idempotency_key}" if idempotency_key else None
    started = await rival_of(request).run(WORKFLOW, order, run_id)
    return {"id": started.run_id, "status": started.status}


@app.get("/orders/{run_id}")
async def look(request: Request, run_id: str) -> dict[str, Any]:
    state = await rival_of(request).state(run_id, fold=10)
    return {"id": run_id, "status": state.status, "step": state.current_step}


@app.get("/orders/{run_id}/result")
async def result(request: Request, run_id: str, timeout: float = 10) -> dict[str, Any]:
    ended = await rival_of(request).wait(WORKFLOW, run_id, timeout)
    return {
        "id": run_id,
        "status": ended.status,
        "result": ended.result,
        "error": ended.error and ended.error["message"],
    }


@app.delete("/orders/{run_id}")
async def cancel(request: Request, run_id: str) -> dict[str, bool]:
    return {"cancelled": await rival_of(request).cancel(run_id, by="web")}


@app.exception_handler(InvalidInput)
@app.exception_handler(RunConflict)
@app.exception_handler(RunNotFound)
@app.exception_handler(WaitTimeout)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    codes = {InvalidInput: 422, RunConflict: 409, RunNotFound: 404, WaitTimeout: 504}
    return JSONResponse({"detail": str(error)}, status_code=codes[type(error)])
