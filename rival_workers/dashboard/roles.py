"""The identity of a caller, and what its role may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "operator", "admin"]
#: What a route demands; "none": it needs no login.
Demand = Literal["none", "viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
_RANK: dict[str, int] = {"none": 0, "viewer": 1, "operator": 2, "admin": 3}
#: Runs that an operator may change at once; an admin may change more.
OPERATORS_BULK, ADMINS_BULK = 100, 10_000


@dataclass(frozen=True)
class Identity:
    """`by`: how the history names an operator. `is_script`: a bearer token, which no browser sends by itself."""

    name: str
    role: Role
    is_script: bool = False

    @property
    def by(self) -> str:
        return f"{self.name}@dashboard"

    def may(self, demand: Demand) -> bool:
        return _RANK[self.role] >= _RANK[demand]
