"""Generates pages of the reference from code: `python docs/generate.py`. A test fails when they are out of date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rival_client.model.policies.option_fields import FIELDS
from rival_client.model.policies.run_policies import NOT_IN_RULES
from rival_client.model.policies.step_config import TARGETS
from rival_client.model.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS, Transition

STATE_MACHINES = Path(__file__).parent / "reference" / "state-machines.md"
POLICIES = Path(__file__).parent / "reference" / "policies.md"

_HEAD = """# State machines

Made from `rival_client/model/transitions.py` by `python docs/generate.py`. Do not edit it by hand.

A transition is one statement or one transaction. Its guard is in the `WHERE`: the row must be in one of the states
under "from" and the caller must hold the row's current token. Otherwise nothing changes, and the operation reports it.
A transition that makes earlier messages or a running attempt obsolete increments the token. Terminal states are final,
except for an operator's retry or rewind.
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
    """A transition whose sources are its targets, such as parking, does not change the status of a row."""
    stays = transition.sources == transition.targets
    for source in sorted(transition.sources):
        yield from ((source, target) for target in ([source] if stays else sorted(transition.targets)))


_POLICIES_HEAD = """# Fields of policies

Made from `rival_client/model/policies/step_config.py` by `python docs/generate.py`. Do not edit it by hand.

The options of `step(…)`, of rules in `policies`, of `run(policies=…)` and of `rival policy set`. Durations are seconds,
or a `timedelta` in Python. The column "for" lists what can have the field: a step, an external step, the function of a
composite or of a wait, a flow as a whole, a step that a flow calls. The column "rules" says whether rules of a run and
of the fleet can set it.
"""


def policies() -> str:
    lines = [_POLICIES_HEAD, "| field | default | for | rules | meaning |", "| --- | --- | --- | --- | --- |"]
    for name, field in FIELDS.items():
        about = field.json_schema_extra
        assert isinstance(about, dict)
        targets = ", ".join(str(one).replace("_", " ") for one in about["targets"])  # type: ignore[union-attr]
        whose = "all" if len(about["targets"]) == len(TARGETS) else targets  # type: ignore[arg-type]
        default = "none" if field.default in (None, ()) else f"`{json.dumps(field.default)}`"
        ruled = "no" if name in NOT_IN_RULES else "yes"
        lines.append(f"| `{name}` | {default} | {whose} | {ruled} | {field.description} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STATE_MACHINES.write_text(state_machines())
    POLICIES.write_text(policies())
