"""What `recover` found and did, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recovery:
    """What `recover` found and did."""

    #: Runs, steps and events that wait for a worker: keepers publish messages for all of them at once.
    republished: int
    #: Of these, steps whose time has come while no keeper looked: they continue.
    resumed: int
    #: Attempts whose executor is dead: a live worker takes them over within a lease.
    lost: int
    #: Runs and steps that no worker had the code for. They are looked at again from time to time, as before.
    parked: int
    #: Runs that wait as a whole: for a time, an event, a child, or an external system.
    suspended: int
    #: Children of ended or rewound parents: a live worker cancels them.
    orphans: int
    #: Steps that wait for their time: delays, and retries.
    waiting_for_time: int
    #: Steps that wait for an event.
    waiting_for_events: int
    #: Processes that run attempts. None: nothing happens until a worker is started.
    live_executors: int
