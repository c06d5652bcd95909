"""Refuses values that pydantic writes as asterisks into JSON (`SecretStr`, `SecretBytes`, `Secret[…]`): they would be
lost without an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import Secret, SecretBytes, SecretStr

_SECRETS = (Secret, SecretBytes, SecretStr)
#: A part of what pydantic writes instead of a secret.
_MASK = "***"


class MaskedValue(TypeError):
    def __init__(self, place: str, kind: str) -> None:
        what = f"field {place!r}" if place else "the value"
        super().__init__(
            f"{what} is a {kind}, of which only asterisks would be stored. What is stored is not hidden: declare it as "
            "str (or bytes), give its model a field_serializer that returns the secret value, or pass a dict"
        )


def refuse_masked(stored: Any, live: Callable[[], Any]) -> None:
    """`stored`: a value as JSON; `live` gives the same value as Python objects. Raises MaskedValue for the first secret
    that `stored` does not have."""
    # The text is made much faster than both values are compared, and most have no asterisks.
    if _MASK in str(stored):
        for place, kind in _masked(live(), stored):
            raise MaskedValue(".".join(place), kind)


def _masked(live: Any, stored: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(live, _SECRETS) and _is_mask(stored, live):
        yield (), type(live).__name__
    for name, its_live, its_stored in _parts(live, stored):
        yield from (((name, *place), kind) for place, kind in _masked(its_live, its_stored))


def _is_mask(stored: Any, secret: Any) -> bool:
    """A serializer of the user may have written the secret itself, or anything else."""
    # What is shown of bytes has a b and quotes around the asterisks.
    hidden = isinstance(stored, str) and _MASK in stored and stored in str(secret)
    return hidden and secret.get_secret_value() not in (stored, stored.encode())


def _parts(live: Any, stored: Any) -> Iterator[tuple[str, Any, Any]]:
    """Both have the same order. A serializer of the user may give another form: then there is nothing to compare."""
    if isinstance(live, Mapping) and isinstance(stored, dict):
        for (live_key, live_value), (key, value) in zip(live.items(), stored.items(), strict=False):
            yield str(key), live_key, key
            yield str(key), live_value, value
    elif isinstance(live, list | tuple | set | frozenset) and isinstance(stored, list):
        for index, (live_value, value) in enumerate(zip(live, stored, strict=False)):
            yield str(index), live_value, value
