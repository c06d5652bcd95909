"""The form of the route table: each entry has its role, so that no route can be written without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from rival_workers.dashboard.roles import Demand, Identity

if TYPE_CHECKING:
    from rival_workers.dashboard.board import Board


class Form(BaseModel):
    """A query or a body: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Form):
    pass


class Confirmed(Form):
    """The base of actions. With `dry_run` nothing is changed: the answer has the same as a command."""

    dry_run: bool = False


@dataclass(frozen=True)
class Call:
    """One request, authorised and parsed."""

    board: Board
    who: Identity | None
    #: The names in the path.
    names: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    #: scheme://host and the path at which the dashboard is mounted, with a slash at its end.
    base: str
    #: Whether the caller is still authorised; streams check it while they last.
    is_still_allowed: Callable[[], bool] = lambda: True

    @property
    def by(self) -> str:
        return self.who.by if self.who else "dashboard"

    @property
    def address(self) -> str:
        return self.headers.get("x-rival-peer", "")


@dataclass(frozen=True)
class Answer:
    """More than the JSON of an answer."""

    content: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    #: None: JSON.
    media_type: str | None = None


Handler = Callable[[Call], Any]
Method = Literal["GET", "POST", "PUT", "DELETE"]


@dataclass(frozen=True)
class Route:
    """`handler` is called in a thread. `path` is below `/api/v1`."""

    method: Method
    path: str
    role: Demand
    handler: Handler
    summary: str
    query: type[Form] = NoQuery
    body: type[Form] | None = None
    #: The type of the answer, for the description of the API.
    answers: Any = dict[str, Any]
    status: int = 200
    #: The words of the command that does the same: `schedule add`.
    does: str | None = None
    #: A write that only computes: also possible on a dashboard that is read-only.
    is_read: bool = False

    @property
    def writes(self) -> bool:
        return self.method != "GET"
