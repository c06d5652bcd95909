"""Matchers of policy rules, as data: which steps a rule applies to. `named("send_.*")`, `of_kind("step", "branch")`.

A matcher with several conditions applies where all of them are true; one without conditions applies everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rival_client.model.checks.argument_errors import shown
from rival_client.model.kinds import FLOW
from rival_client.model.policies.step_config import Target

#: Matchers within matchers.
MAX_DEPTH = 10
#: The kinds of nodes that have options.
KINDS = ("step", "flow", "branch", "parallel", "for_each", "loop", "workflow", "wait_event")


@dataclass(frozen=True)
class Node:
    """A step, flow or composite of a plan, as matchers and predicates see it. `path` has no numbers: `lines[]/pack`."""

    name: str
    kind: str
    path: str
    #: The workflow of the run.
    workflow: str = ""
    #: The nested workflows around it, the innermost first.
    nested_in: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    #: What its options are for: it decides which fields it can have.
    target: Target = "step"
    #: The labels of the run.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: The function itself, for predicates. None where the code is not at hand.
    function: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Matcher:
    name: str | None = None
    regex: str | None = None
    kind: tuple[str, ...] = ()
    path: str | None = None
    workflow: str | None = None
    tag: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Other matchers that must match, too.
    all: tuple[Matcher, ...] = ()

    def matches(self, node: Node) -> bool:
        """A flow as a whole is only matched by its kind or path: other conditions are for the steps that it calls."""
        return (node.kind != FLOW or self._says_flow(node)) and self._is_met(node)

    def _says_flow(self, node: Node) -> bool:
        return FLOW in self.kind or self.path is not None or any(one._says_flow(node) for one in self.all)

    def _is_met(self, node: Node) -> bool:
        return (
            (self.name is None or node.name == self.name)
            and (self._name_pattern is None or self._name_pattern.fullmatch(node.name) is not None)
            and (not self.kind or node.kind in self.kind)
            and (self._path_pattern is None or self._path_pattern.fullmatch(node.path) is not None)
            and (self.workflow is None or self.workflow in (node.workflow, *node.nested_in))
            and (self.tag is None or self.tag in node.tags)
            and all(node.labels.get(key) == value for key, value in self.labels.items())
            and all(one._is_met(node) for one in self.all)
        )

    @cached_property
    def _name_pattern(self) -> re.Pattern[str] | None:
        return None if self.regex is None else re.compile(self.regex)

    @cached_property
    def _path_pattern(self) -> re.Pattern[str] | None:
        """`*` stands for any part of a path."""
        return None if self.path is None else re.compile(re.escape(self.path).replace(r"\*", ".*"))

    @property
    def asks_for_labels(self) -> bool:
        return bool(self.labels) or any(one.asks_for_labels for one in self.all)

    def dump(self) -> dict[str, Any]:
        found = {key: getattr(self, key) for key in ("name", "regex", "path", "workflow", "tag", "labels")}
        data: dict[str, Any] = {key: value for key, value in found.items() if value}
        data |= {"labels": dict(self.labels)} if self.labels else {}
        if self.kind:
            data["kind"] = list(self.kind)
        if self.all:
            data["all"] = [one.dump() for one in self.all]
        return data

    def __str__(self) -> str:
        """As users write it."""
        shown = [f"{key}={value}" for key, value in self.dump().items() if key not in ("kind", "all", "labels")]
        shown += [f"kind={','.join(self.kind)}"] if self.kind else []
        shown += [f"label {key}={value}" for key, value in self.labels.items()]
        shown += [str(one) for one in self.all]
        return " and ".join(shown) or "every step"


def load_matcher(data: Mapping[str, Any]) -> Matcher:
    """A stored matcher. ValueError, with every problem, if this is none."""
    problems = matcher_problems(data)
    if problems:
        raise ValueError("; ".join(problems))
    values: dict[str, Any] = dict(data)
    kind = values.pop("kind", ())
    inner = tuple(load_matcher(one) for one in values.pop("all", ()))
    return Matcher(kind=(kind,) if isinstance(kind, str) else tuple(kind), all=inner, **values)


def matcher_problems(data: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Returns the problems of a matcher that is given as data. `depth`: the number of matchers around it."""
    if depth > MAX_DEPTH:
        return [f"all: more than {MAX_DEPTH} levels"]
    known = ("name", "regex", "kind", "path", "workflow", "tag", "labels", "all")
    problems = [f"unknown condition {shown(key)}; known are {', '.join(known)}" for key in data if key not in known]
    for key in ("name", "regex", "path", "workflow", "tag"):
        if key in data and not (isinstance(data[key], str) and data[key]):
            problems.append(f"{key}: give a text, not {shown(data[key])}")
    if isinstance(data.get("regex"), str):
        problems += _regex_problems(data["regex"])
    kinds = data.get("kind", ())
    for kind in kinds if isinstance(kinds, list | tuple) else (kinds,):
        if not isinstance(kind, str) or kind not in KINDS:
            problems.append(f"kind: {shown(kind)} is not one of {', '.join(KINDS)}")
    labels = data.get("labels", {})
    if not isinstance(labels, Mapping) or not all(isinstance(one, str) for pair in labels.items() for one in pair):
        problems.append("labels: give a mapping of texts")
    return problems + _inner_problems(data.get("all", ()), depth)


def read_matcher(given: Any, problems: list[str]) -> Matcher | None:
    """A matcher as users write it: one of the functions, the name of a step, or data. None: it is something else."""
    match given:
        case Matcher():
            return given
        case str():
            return read_matcher({"name": given}, problems)
        case Mapping():
            found = matcher_problems(given)
            problems += found
            return Matcher() if found else load_matcher(given)
    return None


def _inner_problems(inner: object, depth: int) -> list[str]:
    if not isinstance(inner, list | tuple) or not all(isinstance(one, Mapping) for one in inner):
        return ["all: give a list of matchers"]
    return [problem for one in inner for problem in matcher_problems(one, depth + 1)]


def _regex_problems(pattern: str) -> list[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        return [f"regex: {shown(pattern)} is not a regular expression: {error}"]
    return []


# -- as users write them ----------------------------------------------------------------------------------

#: Every step.
default = Matcher()


def named(pattern: str) -> Matcher:
    """Steps whose whole name matches the regular expression. (Not `name`: workflow files have such a variable.)"""
    return load_matcher({"regex": pattern})


def of_kind(*wanted: str) -> Matcher:
    """Nodes of these kinds: "step", "flow", "branch", "parallel", "for_each", "loop", "workflow", "wait_event"."""
    return load_matcher({"kind": list(wanted)})


def at_path(path: str) -> Matcher:
    """The node at this path of the plan: `lines[]/pack`; `*` stands for any part of it."""
    return load_matcher({"path": path})


def in_workflow(name: str) -> Matcher:
    """Nodes of this workflow, also where it is nested in another."""
    return load_matcher({"workflow": name})


def tagged(tag: str) -> Matcher:
    """Steps with this tag: `step(charge, tags=["external_api"])`, or a predicate of this name."""
    return load_matcher({"tag": tag})


def labelled(**labels: str) -> Matcher:
    """Steps of runs with these labels."""
    return load_matcher({"labels": labels})


def every(*matchers: str | Matcher | Mapping[str, Any]) -> Matcher:
    """Nodes that all of these match."""
    problems: list[str] = []
    found = [read_matcher(one, problems) for one in matchers]
    if problems or not found or None in found:
        raise ValueError("; ".join(problems) or "every: give matchers or names of steps")
    return Matcher(all=tuple(one for one in found if one is not None))
