"""The options of a dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rival_client.errors import InvalidArgument
from rival_workers.dashboard.forwarded import Forwarded
from rival_workers.page_links import is_link
from rival_workers.settings import WorkerSettings

Live = Literal["sse", "poll"]


@dataclass(frozen=True)
class Options:
    """`hosts`: names under which it may be asked for; None: any, because the application around it checks them."""

    hosts: tuple[str, ...] | None = ("127.0.0.1", "localhost", "[::1]")
    read_only: bool = False
    live: Live = "sse"
    #: Further parts of names whose values are hidden.
    redact: tuple[str, ...] = ()
    #: Links from each step to other tools: name -> address, in which {run_id}, {workflow} and {step} are replaced.
    links: Mapping[str, str] = field(default_factory=dict)
    flower: str | None = None
    #: The settings that the doctor checks; None: the client's.
    settings: WorkerSettings | None = None
    #: Reads host, scheme and path from the headers of a trusted proxy; None: no proxy is trusted.
    forwarded: Forwarded | None = None
    #: The database that is read; None: the same as the client's.
    database_url: str | None = None

    def __post_init__(self) -> None:
        for name, template in self.links.items():
            if not (name and is_link(template)):
                raise InvalidArgument(
                    "links", f"{name!r} leads to no page: give https://logs.example.com/?run={{run_id}}"
                )
