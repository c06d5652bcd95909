"""Rules for the values of settings: ranges of numbers, flags, texts that every server accepts. `url_rules` has those
of URLs. An error names the variable, shows the value without secrets and says what is expected. Does not read the
environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from rival_client.errors import InvalidSetting
from rival_client.model.checks.amounts import MAX_INT, MAX_SECONDS
from rival_client.model.checks.argument_errors import shown
from rival_client.model.checks.arguments import MAX_NAME, is_unicode
from rival_client.model.starts.queues import is_queue, split_queues
from rival_client.url_rules import Url

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Rule(Protocol):
    #: What a valid value is, to end a sentence with.
    @property
    def expected(self) -> str: ...

    def parse(self, raw: str) -> Any:
        """The value that a variable's text means; ValueError if it means none."""

    def allows(self, value: Any) -> bool: ...

    def shown(self, value: Any) -> str: ...


def setting(default: Any, rule: Rule, *, repr: bool = True) -> Any:
    """A field of the settings with the rule for its values."""
    return field(default=default, repr=repr, metadata={"rule": rule})


def read(variable: str, raw: str, rule: Rule) -> Any:
    """The value of a variable; InvalidSetting if it is not a valid one."""
    try:
        value = rule.parse(raw)
    except ValueError:
        raise InvalidSetting(variable, rule.shown(raw), rule.expected) from None
    if not rule.allows(value):
        raise InvalidSetting(variable, rule.shown(raw), rule.expected)
    return value


def check(name: str, value: Any, rule: Rule) -> None:
    """The same for a value that was given as an argument. URLs are checked by what opens them."""
    if not isinstance(rule, Url) and not rule.allows(value):
        raise InvalidSetting(f"RIVAL_{name.upper()}", rule.shown(value), rule.expected)


@dataclass(frozen=True)
class Seconds:
    least: float = 0.0
    most: float = MAX_SECONDS
    because: str = ""

    @property
    def expected(self) -> str:
        return f"a number of seconds from {self.least:g} to {self.most:,.0f}{self.because}"

    def parse(self, raw: str) -> float:
        return float(raw)

    def allows(self, value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and not math.isnan(value) and self.least <= value <= self.most

    def shown(self, value: Any) -> str:
        return shown(value)


@dataclass(frozen=True)
class Whole:
    least: int = 0
    most: int = MAX_INT
    of: str = ""

    @property
    def expected(self) -> str:
        return f"a whole number{self.of} from {self.least:,} to {self.most:,}"

    def parse(self, raw: str) -> int:
        return int(raw)

    def allows(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most

    def shown(self, value: Any) -> str:
        return shown(value)


@dataclass(frozen=True)
class Flag:
    expected: str = f"a flag: give one of {', '.join(_TRUE)} or one of {', '.join(_FALSE)}"

    def parse(self, raw: str) -> bool:
        word = raw.strip().lower()
        if word not in _TRUE + _FALSE:
            raise ValueError(word)
        return word in _TRUE

    def allows(self, value: Any) -> bool:
        return isinstance(value, bool)

    def shown(self, value: Any) -> str:
        return shown(value)


@dataclass(frozen=True)
class OneOf:
    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.options)}"

    def parse(self, raw: str) -> str:
        return raw

    def allows(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.options

    def shown(self, value: Any) -> str:
        return shown(value)


@dataclass(frozen=True)
class Words:
    """Text. `of_files`: names of files may hold bytes that are not Unicode, which Python writes as surrogates.
    `is_secret`: errors do not show it."""

    most: int = MAX_NAME
    may_be_blank: bool = True
    of_files: bool = False
    is_secret: bool = False

    @property
    def expected(self) -> str:
        least = "at most" if self.may_be_blank else "1 to"
        return f"a usable text: give {least} {self.most:,} characters of Unicode without NUL"

    def parse(self, raw: str) -> str:
        return raw

    def allows(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > self.most or "\x00" in value:
            return False
        return (self.may_be_blank or bool(value.strip())) and (self.of_files or is_unicode(value))

    def shown(self, value: Any) -> str:
        return shown("***" if self.is_secret else value)


@dataclass(frozen=True)
class QueueNames:
    """Names of queues with commas between them; none: the fleet's own queue."""

    expected: str = "a list of names of queues with commas between them; a name has letters, digits or any of . : _ -"

    def parse(self, raw: str) -> str:
        return raw

    def allows(self, value: Any) -> bool:
        return isinstance(value, str) and all(is_queue(name) for name in split_queues(value))

    def shown(self, value: Any) -> str:
        return shown(value)
