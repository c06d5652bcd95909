"""The result of `explain`: the reasons why a run does not move."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import join

#: Names that a text lists.
NAMED = 3


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


# -- words ------------------------------------------------------------------------------------------------


def command(words: str, /, *given: str, **options: str) -> str:
    """Can be pasted into a shell, whatever the names are."""
    named = [part for name, value in options.items() for part in (f"--{name}", value)]
    after = ["--", *given] if any(one.startswith("-") for one in given) else [*given]
    return join(["rival", *words.split(), *(named + after if "--" in after else after + named)])


def is_ahead(at: dt.datetime | None, now: dt.datetime) -> bool:
    return at is not None and at > now


def clock_text(at: dt.datetime | None) -> str:
    return "an unknown time" if at is None else f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def sentence(text: str) -> str:
    """Messages of errors may end with a full stop, or not."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def few(workers: Sequence[str]) -> str:
    more = len(workers) - NAMED
    return ", ".join(workers[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
