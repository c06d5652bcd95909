"""What `explain` returns: the reasons why a run is where it is."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reason:
    """`what` names the case. `do`: what ends it, if a person can. `evidence`: the facts that it rests on."""

    what: str
    text: str
    step: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    who: str | None = None
    do: str | None = None
    command: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return self.what != "unknown"


@dataclass(frozen=True)
class Why:
    """Why a run is where it is. An open run has at least one reason."""

    run_id: str
    status: str
    at: dt.datetime
    reasons: tuple[Reason, ...] = field(default_factory=tuple)
    #: There are further open steps.
    more: bool = False

    @property
    def sentence(self) -> str:
        return " ".join(one.text for one in self.reasons[:3])
