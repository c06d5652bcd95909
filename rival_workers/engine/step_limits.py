"""The limits of the steps of a workflow, each with a name, and the flows that have none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rival_client.model.limits.limits import Limit
from rival_client.model.policies.rulebook import Rulebook
from rival_client.model.policies.step_config import StepConfig
from rival_workers.engine.nodes import FlowNode
from rival_workers.engine.paths import place_of
from rival_workers.engine.policies import Policies


def limits_at(workflow: str, path: str, config: StepConfig) -> tuple[Limit, ...]:
    """The limits of the step at this path."""
    if not config.limits:
        return ()
    place = place_of(path)
    return tuple(limit.named(workflow, place) for limit in config.limits)


def limits_of(policies: Policies) -> list[Limit]:
    """All limits of a workflow, by name; of several definitions of one limit, the last."""
    return list({limit.gate_name: limit for _, limit in _places(policies)}.values())


def contradictions(policies: Policies, of_runs: Sequence[Limit]) -> list[str]:
    """Limits of one name that do not allow the same: only one of them could hold."""
    found: dict[str, tuple[str, Limit]] = {}
    problems = []
    for where, limit in (*(("its runs", one) for one in of_runs), *_places(policies)):
        other, first = found.setdefault(limit.gate_name, (where, limit))
        problems += contradiction(first, other, limit, where)
    return [*problems, *_waits_for_itself(policies, of_runs)]


def _waits_for_itself(policies: Policies, of_runs: Sequence[Limit]) -> Iterator[str]:
    """Limits that a run has while its steps wait for them."""
    held = {(one.gate_name, one.key) for one in of_runs if not one.is_rate}
    for where, limit in _places(policies):
        if not limit.is_rate and (limit.gate_name, limit.key) in held:
            what = f"limit {limit.gate_name!r} is one of its runs and of {where}"
            yield f"{what}: a run would wait for a slot that the run itself uses; give one of them another name"


def contradiction(first: Limit, of_first: str, second: Limit, of_second: str) -> list[str]:
    """Returns the contradiction between two limits of one name; empty if they allow the same."""
    allowed = (_allows(first), _allows(second))
    if allowed[0] == allowed[1]:
        return []
    what = f"{allowed[0]} for {of_first} and {allowed[1]} for {of_second}"
    return [f"limit {second.gate_name!r} is {what}: a name has one limit; give the other another name"]


def _allows(limit: Limit) -> str:
    if limit.per is None:
        return f"limit({limit.max})"
    burst = f", burst={limit.burst}" if limit.burst else ""
    return f"rate({limit.max}, per={limit.per:g}{burst})"


def _places(policies: Policies) -> Iterator[tuple[str, Limit]]:
    for path, place in policies.plan.places.items():
        for limit in limits_at(policies.workflow, path, policies.of_node(place).config):
            yield f"step {path!r}", limit


def plain_flows(policies: Policies, book: Rulebook) -> Iterator[tuple[str, float | None]]:
    """The paths and time limits of flows that need nothing else for a claim, in runs without rules of their own: no
    limit, and no rule of the fleet that changes their options or depends on the run."""
    if book.asks_for_labels:
        return
    now = policies.over(None, book, None)
    for path, place in now.plan.places.items():
        if isinstance(place.node, FlowNode) and "[" not in path:
            config = now.at(path)
            if not config.limits and now.recorded(path) is None:
                yield path, config.limit
