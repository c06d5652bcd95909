"""A flow's `ctx.state` beside what its row has of it: each commit stores it if it has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rival_client.model.payload import Json, dump, serialise

_EMPTY = Json("{}")


class FlowState:
    def __init__(
        self, read: Callable[[], Mapping[str, Any]], what: str, limit: int, stored: Mapping[str, Any] | None = None
    ) -> None:
        """`read`: the state as the flow has it now. `what`: its name in errors. `stored`: by earlier attempts."""
        self._read, self._what, self._limit = read, what, limit
        self._stored = Json(serialise(stored)) if stored else _EMPTY

    def unstored(self) -> Json | None:
        """Its JSON; None: it is as it was stored. InvalidPayload when it is not JSON."""
        state = self._read()
        text = dump(dict(state), what=self._what, limit=self._limit) if state else _EMPTY
        return None if text == self._stored else text

    def is_stored(self, state: Json | None) -> None:
        """What `unstored` returned is committed."""
        self._stored = state or self._stored
