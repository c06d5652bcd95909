"""What steps see of one another's results, and `Results`: the types of a whole workflow's results in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Generic, get_args, get_origin, get_type_hints

from typing_extensions import TypeVar

from rival_client.model.statuses import StepStatus

T_co = TypeVar("T_co", covariant=True, default=Any)


class StepView(Generic[T_co]):
    """An earlier step: `.result`, `.state`, `.status`. The first step's `last_step` is an empty one."""

    def __init__(
        self,
        step_name: str | None = None,
        status: StepStatus = "pending",
        result: Any = None,
        state: dict[str, Any] | None = None,
        restore: Callable[[Any], Any] | None = None,
    ) -> None:
        self.step_name = step_name
        self.status: StepStatus = status
        self.state: dict[str, Any] = {} if state is None else state
        self._stored, self._restore = result, restore

    @cached_property
    def result(self) -> T_co:
        """As the type it was declared as. Restored when it is read: whoever wants the status alone pays nothing."""
        # A step that was skipped or has failed has no result, whatever its type.
        if self._restore is None or self._stored is None:
            return self._stored  # type: ignore[no-any-return]
        return self._restore(self._stored)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"StepView({self.step_name!r}, {self.status!r}, {self._stored!r}, {self.state!r})"


StepOf = StepView


class Results:
    """The results of a workflow's steps, for a type checker and for the worker:

        class TreeResults(Results):
            find_tree: StepOf[Tree]
            chop_tree: StepOf[Pieces]

    As the annotation of a step's parameter `steps` it says what `steps.find_tree.result` is. As `results` of the
    workflow it makes it so: results are checked when a step ends and restored when they are read.
    """

    def __getitem__(self, name: str) -> StepView[Any]:
        raise NotImplementedError("a step is given this run's steps instead")

    def __contains__(self, name: object) -> bool:
        raise NotImplementedError("a step is given this run's steps instead")

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError("a step is given this run's steps instead")


def declared(results: Any) -> dict[str, Any]:
    """Step name -> the type of its result; ValueError, with the cure, for what is no such declaration."""
    if not (isinstance(results, type) and issubclass(results, Results)):
        raise ValueError(f"give a subclass of Results, not {results!r}")
    try:
        hints = get_type_hints(results, include_extras=True)
    except Exception as error:
        raise ValueError(f"a type of {results.__name__} cannot be found: {error}") from error
    return {name: _type_of(name, hint) for name, hint in hints.items()}


def _type_of(name: str, hint: Any) -> Any:
    if hint is StepView:
        return Any
    if get_origin(hint) is not StepView:
        shown = getattr(hint, "__name__", str(hint))
        raise ValueError(f"{name} is a {shown}, not a step: write {name}: StepOf[{shown}]")
    return get_args(hint)[0]
