"""Writes the pages that are made from code: `python docs/generate.py`. A test fails when they are out of date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rival_client.model.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS, Transition

STATE_MACHINES = Path(__file__).parent / "reference" / "state-machines.md"

_HEAD = """# State machines

Made from `rival_client/model/transitions.py` by `python docs/generate.py`. Do not edit it by hand.

A transition is one statement or one transaction. Its guard is in the `WHERE`: the row must be in one of the states
under "from" and the caller must hold the row's current token. Otherwise nothing changes, and the operation reports it.
Every transition except parking, pausing and a heartbeat increments the token. Terminal states are final, except for an
operator's retry or rewind.
"""


def state_machines() -> str:
    return "\n".join(
        [
            _HEAD,
            "## Steps\n",
            _diagram(STEP_TRANSITIONS),
            _table(STEP_TRANSITIONS),
            "## Runs\n",
            _diagram(RUN_TRANSITIONS),
            _table(RUN_TRANSITIONS),
        ]
    )


def _table(transitions: dict[str, Transition]) -> str:
    lines = ["| transition | from | to | guard | effect |", "| --- | --- | --- | --- | --- |"]
    for t in transitions.values():
        lines.append(f"| `{t.verb}` | {_states(t.sources)} | {_states(t.targets)} | `{t.guard}` | {t.effect} |")
    return "\n".join(lines) + "\n"


def _states(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _diagram(transitions: dict[str, Transition]) -> str:
    edges = [f"    {source} --> {target}: {t.verb}" for t in transitions.values() for source, target in _edges(t)]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> pending", *edges, "```\n"])


def _edges(transition: Transition) -> Iterator[tuple[str, str]]:
    """Parking leaves a row where it is: not every source leads to every target."""
    stays = transition.sources == transition.targets
    for source in sorted(transition.sources):
        yield from ((source, target) for target in ([source] if stays else sorted(transition.targets)))


if __name__ == "__main__":
    STATE_MACHINES.write_text(state_machines())
