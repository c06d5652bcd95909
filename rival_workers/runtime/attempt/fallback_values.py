"""The value of a fallback that a rule has given is checked when it is used: the rule knows no types. One in the
definition is checked at registration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rival_client.model.payload import load
from rival_client.model.policies.step_config import StepConfig
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Decision, End, final
from rival_workers.errors import InvalidResult
from rival_workers.runtime.attempt.invoke import failure

if TYPE_CHECKING:
    from rival_workers.definition.registry import Registry
    from rival_workers.runtime.attempt.position import Position


def checked_at(position: Position, decision: Decision, registry: Registry) -> Decision:
    """The decision about a step of a plan. A worker without its code cannot check it."""
    if not isinstance(decision, End) or decision.fallback is None:
        return decision
    definition = registry.find(position.workflow, position.version)
    returns = None if definition is None else definition.returns_at(position.claim.path)
    where = f"step {position.claim.path!r} of run {position.claim.run_id!r}"
    return checked(decision, returns, position.config, where, position.attempt)


def checked(decision: Decision, returns: Returns | None, config: StepConfig, where: str, attempt: int) -> Decision:
    """The same decision, or a failure with `InvalidResult` if the value does not have the type of the step's result."""
    if returns is None or not isinstance(decision, End) or decision.fallback is None:
        return decision
    try:
        returns.stored(load(decision.result), f"value(…), the fallback of {where},")
    except InvalidResult as error:
        failed, own = failure(error, attempt), decision.attempt_error or {}
        cause = {name: own[name] for name in ("type", "message") if name in own}
        return final(config, replace(failed, error={**failed.error, "cause": cause}), has_fallen_back=True)
    return decision
