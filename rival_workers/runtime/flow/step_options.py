"""The options of a flow's step: which keywords of `ctx.step(function, …)` are options and which are the function's, and
what `@step(…)` and `step(function, …)` add. A keyword that could be either is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from rival_client.model.checks import argument_errors
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.option_conflicts import conflicts
from rival_client.model.policies.policy_options import checked_options as checked_fields
from rival_client.model.policies.policy_rules import DEFAULTS, overridden
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_workers.definition.given_steps import OPTIONS, decorator_options, flattened, location, name_of, options_for
from rival_workers.definition.misplaced_options import NOT_IN_FLOWS, not_in_flows
from rival_workers.definition.rules import Predicate, RuleSet
from rival_workers.definition.steps import StepSpec
from rival_workers.engine.policies import Policies

#: Options of a step that is part of a plan, where None means none.
_OF_PLANS = (
    "name",
    "on_error",
    "compensate",
    "deadline",
    "delay",
    "scheduled_at",
    "queue_timeout",
    "queue",
    "priority",
)


@dataclass(frozen=True)
class FlowPolicies:
    """The options of the steps that one flow calls."""

    policies: Policies | None
    flow: str
    predicates: Mapping[str, Predicate] = field(default_factory=dict)

    def of_step(self, name: str, own: Mapping[str, Any], tags: Sequence[str], function: Any) -> StepConfig:
        """ValueError when the options make no sense together."""
        if self.policies is None:
            return StepConfig(**own) if own else DEFAULTS
        if self.predicates:
            node = Node(name, "step", f"{self.flow}/{name}", tags=tuple(tags), target="flow_step", function=function)
            tags = (*tags, *RuleSet(predicates=self.predicates).tags(node))
        config = self.policies.of_flow_step(self.flow, name, own, tags).config
        # Rules of the run and of the fleet are for many steps: one that makes no sense here does not fail the step.
        if conflicts(config) and (
            problems := conflicts(self.policies.base.of_flow_step(self.flow, name, own, tags).config)
        ):
            raise ValueError("; ".join(problems))
        return config


#: Of a flow without a workflow, in tests.
NO_FLOW_POLICIES = FlowPolicies(None, "")


@record(frozen=True)
class StepCall:
    """What `ctx.step` calls."""

    function: Callable[..., Any]
    #: The step's options, with its name if it has one, over those of `step(function, …)`, of `ctx.gather` and of
    #: `@step(…)`, in this order.
    options: Mapping[str, Any]
    keywords: Mapping[str, Any]

    @property
    def origin(self) -> str:
        """Where options come from that the call does not show, for errors."""
        is_decorated = self.options.keys() & decorator_options(self.function).keys()
        return f"@step(…) of {name_of(self.function)}{location(self.function)}: " if is_decorated else ""


#: Types whose values are the same if they are equal and have the same type.
_COMPARABLE = frozenset({str, int, float, bool, type(None)})
_OPTIONS = frozenset(OPTIONS)


class _Same:
    """A key that is equal for one object only, and keeps it."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def key_of(given: Any, name: Any, args: int, keywords: Mapping[str, Any]) -> Any:
    """Equal for calls of `ctx.step` that differ in their arguments only. None: the keywords may be arguments, or have
    values that cannot be compared."""
    if type(given) is FunctionType:
        if name is None and not keywords:
            return given
        values = {"name": name, **keywords}
        if keywords.keys() <= _OPTIONS and all(type(value) in _COMPARABLE for value in values.values()):
            return (given, args, *((key, type(value), value) for key, value in values.items()))
    elif isinstance(given, StepSpec) and name is None and not keywords:
        return _Same(given)
    return None


def step_call(
    given: Any,
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    options: Mapping[str, Any] | None,
    gathered: Mapping[str, Any],
) -> StepCall:
    """`given`: a function or `step(function, …)`. `gathered`: the options of `ctx.gather` or `ctx.first`."""
    spec = _spec(given)
    if not callable(spec.function):
        raise argument_errors.invalid("function", spec.function, "a function that ctx.step can call")
    if isinstance(given, StepSpec):
        options = options or {}  # so that the keywords are the function's
    chosen, its_own = split_keywords(spec.function, args, keywords, options)
    decorated = decorator_options(spec.function)
    merged = overridden(overridden(overridden(decorated, gathered), spec.options), chosen)
    # None in place of a handler means none: so a call can do without that of the decorator.
    merged = {key: value for key, value in merged.items() if value is not None or key not in _OF_PLANS}
    return StepCall(spec.function, merged, its_own)


def _spec(given: Any) -> StepSpec:
    spec = flattened(given) if isinstance(given, StepSpec) else StepSpec(given, {})
    if spec.only_in_plans:
        raise ValueError(
            f"{spec.options['name']}: a predefined step is part of a plan. Put it into a workflow of steps, and "
            "ctx.call(…) that; or give ctx.step a function."
        )
    return spec


def checked_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options as fields of a policy, and the tags. ValueError when a flow's step cannot have them."""
    problems: list[str] = []
    others = {key: value for key, value in options.items() if key not in NOT_IN_FLOWS}
    own = checked_fields(others, options_for("flow_step"), problems)
    tags = options.get("tags", ())
    problems += not_in_flows({key: own.get(key) for key in options if key in own or key in NOT_IN_FLOWS})
    if problems:
        raise ValueError("; ".join(problems))
    return own, (tags,) if isinstance(tags, str) else tuple(tags)


def split_keywords(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], options: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the step, and the function's keywords. With `options`, keywords are the function's if it takes
    them. ValueError for a keyword that could be either."""
    if not keywords:
        return dict(options or {}), {}
    named, takes_any = _parameters(function, len(args))
    both = [key for key in keywords if key in OPTIONS and key in named]
    if both and options is None:
        raise ValueError(_ambiguous(function, both[0]))
    known = OPTIONS if options is None else {"name"}
    its_own = {key for key in keywords if key in named or (takes_any and key not in known)}
    others = {key: value for key, value in keywords.items() if key not in its_own}
    return {**others, **(options or {})}, {key: keywords[key] for key in keywords if key in its_own}


def _parameters(function: Callable[..., Any], given: int) -> tuple[set[str], bool]:
    """The parameters that can be given by name, without the first ones, which are given by position; and whether the
    function takes any name."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return set(), True  # a builtin without a signature
    takes_any = any(one.kind is one.VAR_KEYWORD for one in found)
    positional = [one for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    by_name = [one for one in positional[given:] if one.kind is one.POSITIONAL_OR_KEYWORD]
    return {one.name for one in [*by_name, *(one for one in found if one.kind is one.KEYWORD_ONLY)]}, takes_any


def _ambiguous(function: Callable[..., Any], key: str) -> str:
    shown = name_of(function)
    return (
        f"ctx.step({shown}, {key}=…): {key!r} is a parameter of {shown} and an option of a step. Give the option as "
        f"options={{{key!r}: …}}, and the parameter as an argument or with functools.partial({shown}, {key}=…)."
    )
