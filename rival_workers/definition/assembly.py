"""A list of what users write becomes a body of the plan, and a table of how to call each function in it.

Every problem is collected, with the place it was found at; nothing is raised before all of it has been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from pydantic import ValidationError

from rival_workers.definition.composites import (
    DEFAULT_ITERATIONS,
    BranchSpec,
    CompositeSpec,
    ForEachSpec,
    LoopSpec,
    ParallelSpec,
    WorkflowSpec,
    workflow,
)
from rival_workers.definition.inject import HANDLER_NAMES, IN_ITEM, IN_TURN, STEP_NAMES, Injection
from rival_workers.definition.policies import Rule, ruled
from rival_workers.definition.returns import Returns, returns_of
from rival_workers.definition.steps import (
    as_spec,
    checked_config,
    checked_injection,
    is_name,
    location,
    name_of,
)
from rival_workers.definition.waits import WaitSpec, receive
from rival_workers.engine.paths import HANDLER
from rival_workers.engine.plan import (
    AnyNode,
    Body,
    BranchNode,
    FlowNode,
    ForEachNode,
    LoopNode,
    ParallelNode,
    SleepNode,
    StepConfig,
    StepNode,
    WaitNode,
    WorkflowNode,
)
from rival_workers.errors import DefinitionError

ReadInput = Callable[[Any], Any]


@dataclass(frozen=True)
class Call:
    """How to call what stands at one place of the plan."""

    injection: Injection
    #: Reads the input of the workflow that the function was written for; None: that of the one around it.
    read_input: ReadInput | None = None
    #: Of a flow: the policies that hold for what it calls.
    rules: tuple[Rule, ...] = ()


class Assembled(Protocol):
    """A workflow that can be a step of another."""

    name: str
    on_error: Injection | None

    @property
    def body(self) -> Body: ...
    @property
    def calls(self) -> Mapping[str, Call]: ...
    @property
    def returns(self) -> Mapping[str, Returns]: ...


#: Finds the workflow that another one refers to, by file, by name or itself; ValueError says why not.
Resolve = Callable[[Any], Assembled]


@dataclass
class Scope:
    """Where a body stands: what its places begin with, and what its functions may ask for."""

    prefix: str = ""
    allowed: tuple[str, ...] = STEP_NAMES
    names: set[str] = field(default_factory=set)

    @property
    def handlers(self) -> tuple[str, ...]:
        return (*self.allowed, *HANDLER_NAMES[len(STEP_NAMES) :])

    def inner(self, prefix: str, *more: str) -> Scope:
        return Scope(prefix, tuple(dict.fromkeys((*self.allowed, *more))))


@runtime_checkable
class FlowSpec(Protocol):
    """A flow in a list of steps."""

    function: Callable[..., Any]
    name: str
    version: str | None


@dataclass(frozen=True)
class Sleep:
    """`delay_step(seconds=20)`."""

    name: str
    seconds: Any
    #: What is wrong with what it was made of.
    problems: tuple[str, ...] = ()


@dataclass
class Assembly:
    resolve: Resolve
    #: For many steps at once.
    rules: Sequence[Rule] = ()
    calls: dict[str, Call] = field(default_factory=dict)
    #: The types of results, by place, where there are any.
    returns: dict[str, Returns] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: Those of other workflows that this one needs: they name their own files.
    problems_elsewhere: list[str] = field(default_factory=list)
    #: Something is wrong beyond having a place in the plan: what is asked of the plan may be answered wrongly.
    incomplete: bool = False
    _where: str = ""
    _origin: str = ""

    # -- problems -----------------------------------------------------------------------------------------

    @contextmanager
    def _at(self, where: str, origin: str = "") -> Iterator[None]:
        before = self._where, self._origin
        self._where, self._origin = f"{self._where}{where}", origin or self._origin
        try:
            yield
        finally:
            self._where, self._origin = before

    def _problem(self, text: str, of: Any = None) -> None:
        """`of`: the function that it is about; otherwise it is about what is being looked at."""
        at = location(of) or (f" ({self._origin})" if self._origin else "")
        self.problems.append(f"{self._where}: {text}{at}" if self._where else f"{text}{at}")

    # -- bodies -------------------------------------------------------------------------------------------

    def body(self, things: Any, scope: Scope, where: str) -> Body:
        if not isinstance(things, Sequence) or isinstance(things, str):
            things = [things]
        nodes: list[AnyNode] = []
        for index, thing in enumerate(things):
            with self._at(f"{where}[{index}]"):
                node = self._node(thing, scope)
                if node is not None:
                    self._unique(node.name, scope, thing)
                    nodes.append(node)
        self.incomplete |= len(nodes) < len(things)
        return tuple(nodes)

    def _filled(self, things: Any, scope: Scope, where: str) -> Body:
        if isinstance(things, Sequence) and not things:
            self._problem(f"{where.removeprefix('.')} is empty: give at least one step")
        return self.body(things, scope, where)

    def _unique(self, name: str, scope: Scope, thing: Any) -> None:
        if name in scope.names:
            function = getattr(thing, "function", thing)
            self._problem(f"step {name!r} appears twice: give one of them another name, step(…, name=…)", function)
        scope.names.add(name)

    def _node(self, thing: Any, scope: Scope) -> AnyNode | None:
        if hasattr(thing, "build") or hasattr(thing, "calls"):
            # A workflow itself, as it is.
            thing = workflow(thing)
        return self._composite(thing, scope) if isinstance(thing, CompositeSpec) else self._leaf(thing, scope)

    # -- steps --------------------------------------------------------------------------------------------

    def _leaf(self, thing: Any, scope: Scope) -> AnyNode | None:
        if isinstance(thing, Sleep):
            return self._sleep(thing, scope)
        if isinstance(thing, WaitSpec):
            return self._wait(thing, scope)
        if isinstance(thing, FlowSpec):
            return self._flow(thing, scope)
        try:
            spec = as_spec(thing)
        except ValueError as error:
            self._problem(str(error))
            return None
        name = spec.options.get("name") or name_of(spec.function)
        found = list(spec.problems)
        config = checked_config(ruled(self.rules, str(name), "step", spec.options), found)
        called = checked_injection(spec.function, scope.allowed, name, found)
        on_error = spec.options.get("on_error")
        handler = checked_injection(on_error, scope.handlers, f"{name}'s on_error", found) if on_error else None
        if not is_name(name):
            self.incomplete = True
            found.append(f"step name {name!r}: use letters, digits, _ and -; give one with step(…, name=…)")
        for problem in found:
            self._problem(problem, spec.function)
        if called is not None:
            self._add(scope.prefix + str(name), called, handler)
        return StepNode(name=str(name), config=config or StepConfig(), on_error=handler is not None)

    def _sleep(self, sleep: Sleep, scope: Scope) -> AnyNode | None:
        for problem in sleep.problems:
            self._problem(problem)
        if not is_name(sleep.name):
            self._problem(f"delay name {sleep.name!r}: use letters, digits, _ and -")
        self._add(scope.prefix + sleep.name, Injection(_wake_up, (), ()), None)
        try:
            return SleepNode(type="sleep", name=sleep.name, seconds=sleep.seconds)
        except ValidationError as error:
            self._invalid(sleep.name, error)
            return None

    def _flow(self, flow: FlowSpec, scope: Scope) -> AnyNode | None:
        found: list[str] = []
        called = checked_injection(flow.function, scope.allowed, flow.name, found)
        for problem in found:
            self._problem(problem, flow.function)
        if called is None:
            return None
        place = scope.prefix + flow.name
        self._add(place, called, None)
        self.calls[place] = replace(self.calls[place], rules=tuple(self.rules))
        return FlowNode(type="flow", name=flow.name, code=flow.version)

    def _wait(self, spec: WaitSpec, scope: Scope) -> AnyNode | None:
        if not is_name(spec.name):
            self._problem(f"step name {spec.name!r}: use letters, digits, _ and -; give one with name=…")
            return None
        with self._at(f" {spec.name!r}"):
            common = self._common(spec, scope)
            place = scope.prefix + spec.name
            key = None if callable(spec.key) else spec.key
            if callable(spec.key):
                self._ask(place, "key", spec.key, scope)
            received = receive(spec.topic, spec.timeout, spec.on_timeout)
            self.calls[place] = Call(Injection(received, ("event",), ()))
            try:
                return WaitNode(
                    type="wait_event", topic=spec.topic, key=key, own_key=callable(spec.key),
                    where=None if spec.where is None else dict(spec.where), timeout=spec.timeout,
                    on_timeout=spec.on_timeout, **common,
                )  # fmt: skip
            except ValidationError as error:
                self._invalid(spec.name, error)
                return None

    def _add(self, place: str, called: Injection, handler: Injection | None) -> None:
        self.calls[place] = Call(called)
        returns = returns_of(called.function)
        if returns is not None:
            self.returns[place] = returns
        if handler is not None:
            self.calls[place + HANDLER] = Call(handler)

    # -- composites ---------------------------------------------------------------------------------------

    def _composite(self, spec: CompositeSpec, scope: Scope) -> AnyNode | None:
        if isinstance(spec, WorkflowSpec):
            return self._workflow(spec, scope)
        with self._at(f" {spec.name!r}", spec.origin):
            if not is_name(spec.name.removesuffix("?") if isinstance(spec.name, str) else spec.name):
                self._problem(f"name {spec.name!r}: use letters, digits, _ and -, and a ? at the end if you like")
                return None
            common = self._common(spec, scope)
            try:
                return self._made(spec, scope, common)
            except ValidationError as error:
                self._invalid(spec.name, error)
                return None

    def _common(self, spec: CompositeSpec | WaitSpec, scope: Scope) -> dict[str, Any]:
        """What all composites have: a name, options, a handler."""
        found: list[str] = []
        options = ruled(self.rules, spec.name, spec.kind, spec.options)
        config = checked_config(options, found, not_known=("name", "execution_mode", "deadline")) or StepConfig()
        on_error = spec.options.get("on_error")
        handler = checked_injection(on_error, scope.handlers, "on_error", found) if on_error else None
        for problem in found:
            self._problem(problem)
        if handler is not None:
            self.calls[scope.prefix + spec.name + HANDLER] = Call(handler)
        return {"name": spec.name, "config": config, "on_error": handler is not None}

    def _made(self, spec: CompositeSpec, scope: Scope, common: dict[str, Any]) -> AnyNode | None:
        path = scope.prefix + spec.name
        match spec:
            case BranchSpec():
                self._ask(path, "when", spec.when, scope)
                inner = scope.inner(f"{path}/")
                then = self._filled(spec.then, inner, ".then")
                return BranchNode(
                    type="branch", then=then, otherwise=self.body(spec.otherwise, inner, ".otherwise"), **common
                )
            case ParallelSpec():
                return self._parallel(spec, scope.inner(f"{path}/"), common)
            case ForEachSpec():
                self._ask(path, "items", spec.items, scope)
                do = self._filled(spec.do, scope.inner(f"{path}[]/", *IN_ITEM), ".do")
                return ForEachNode(
                    type="for_each", do=do, concurrency=spec.concurrency, on_failure=spec.on_failure,
                    collect=spec.collect, **common,
                )  # fmt: skip
            case LoopSpec():
                return self._loop(spec, path, scope, common)
        raise AssertionError(f"{spec!r} is no composite")

    def _parallel(self, spec: ParallelSpec, inner: Scope, common: dict[str, Any]) -> AnyNode:
        if not spec.branches:
            self._problem("has no steps: give at least one")
        bodies = tuple(self._filled(way, inner, f"[{n}]") for n, way in enumerate(spec.branches))
        return ParallelNode(type="parallel", branches=bodies, on_failure=spec.on_failure, **common)

    def _loop(self, spec: LoopSpec, path: str, scope: Scope, common: dict[str, Any]) -> AnyNode:
        inner = scope.inner(f"{path}[]/", *IN_TURN)
        if spec.until is not None and spec.while_ is not None:
            self._problem("has both until and while_: give one")
        if spec.until is None and spec.while_ is None and spec.max_iterations is None:
            self._problem("has no end: give until=…, while_=… or max_iterations=…")
        mode = "until" if spec.until else "while" if spec.while_ else "count"
        if mode != "count":
            self._ask(f"{path}[]", mode, spec.until or spec.while_, inner)
        most = DEFAULT_ITERATIONS if spec.max_iterations is None else spec.max_iterations
        do = self._filled(spec.do, inner, ".do")
        return LoopNode(type="loop", do=do, mode=mode, max_iterations=most, **common)  # type: ignore[arg-type]

    def _ask(self, place: str, role: str, function: Any, scope: Scope) -> None:
        """A question is a user's function, so it is called as a step is."""
        found: list[str] = []
        called = checked_injection(function, scope.allowed, role, found, may_yield=role == "items")
        for problem in found:
            self._problem(problem, function)
        if called is not None:
            self.calls[f"{place}!{role}"] = Call(called)

    def _workflow(self, spec: WorkflowSpec, scope: Scope) -> AnyNode | None:
        nested = self._resolved(spec)
        if nested is None:
            return None
        spec = replace(spec, name=spec.name or nested.name)
        path = scope.prefix + spec.name
        with self._at(f" {spec.name!r}", spec.origin):
            common = self._common(spec, scope)
            if spec.input is not None:
                self._ask(path, "input", spec.input, scope)
            if nested.on_error is not None and common["on_error"]:
                self._problem(f"workflow {spec.name!r} has an on_error of its own: give it none here")
        common["on_error"] |= nested.on_error is not None
        for place, call in nested.calls.items():
            # An input of its own is not read as that of the workflow around it.
            reader = call.read_input or (_as_it_is if spec.input is not None else None)
            self.calls[_placed(path, place)] = replace(call, read_input=reader)
        self.returns |= {_placed(path, place): returns for place, returns in nested.returns.items()}
        return WorkflowNode(
            type="workflow", workflow=nested.name, body=nested.body, own_input=spec.input is not None,
            propagate_failure=spec.propagate_failure, **common,
        )  # fmt: skip

    def _resolved(self, spec: WorkflowSpec) -> Assembled | None:
        try:
            return self.resolve(spec.reference)
        except DefinitionError as error:
            self.problems_elsewhere += error.problems
        except ValueError as error:
            with self._at("", spec.origin):
                self._problem(str(error))
        return None

    def _invalid(self, name: str, error: ValidationError) -> None:
        for one in error.errors():
            self._problem(f"option {'.'.join(map(str, one['loc']))} of {name!r}: {one['msg']}")


def _placed(path: str, place: str) -> str:
    """A nested workflow's place within the one around it; its handler is that of the step it has become."""
    return path + place if place == HANDLER else f"{path}/{place}"


def _as_it_is(value: Any) -> Any:
    return value


def _wake_up() -> None:
    """A sleep's function."""
