"""The limits of the steps of a workflow, each with a name. Pure."""

from __future__ import annotations

from rival_client.model.limits.limits import Limit
from rival_client.model.policies.step_config import StepConfig
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
    configs = ((path, policies.of_node(place).config) for path, place in policies.plan.places.items())
    found = (limit for path, config in configs for limit in limits_at(policies.workflow, path, config))
    return list({limit.gate_name: limit for limit in found}.values())
