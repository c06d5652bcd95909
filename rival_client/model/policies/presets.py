"""Ready-made options for common kinds of steps, and lists of rules that can be put together.

`step(ask, **llm_policy(timeout=90))`; `PolicyRules().append("ask", llm_policy()).append(default, io_policy())`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.model.policies.policy_rules import overridden


def merge_policies(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, field by field; `over` wins. `max_attempts` and `max_retries` count as one field."""
    for name, given in (("base", base), ("over", over)):
        if not isinstance(given, Mapping):
            fields = "give the fields of a policy, such as {'timeout': 60}"
            raise TypeError(f"merge_policies: {name} is {given!r}: {fields}")
    return overridden(base, over)


def llm_policy(**over: Any) -> dict[str, Any]:
    """Calls of a language model: slow, often rate-limited; a wrong request is not sent again."""
    base = {
        "timeout": 60.0,
        "max_retries": 4,
        "backoff": "jitter",
        "base_delay": 2.0,
        "max_delay": 60.0,
        "no_retry_on": ("*.BadRequestError", "*.AuthenticationError", "http.400", "http.401", "http.403", "ValueError"),
    }
    return merge_policies(base, over)


def io_policy(**over: Any) -> dict[str, Any]:
    """Network and disk: only errors of the connection are retried, soon and a few times."""
    base = {
        "timeout": 30.0,
        "max_retries": 3,
        "backoff": "exponential",
        "base_delay": 0.5,
        "max_delay": 10.0,
        "retry_on": ("OSError", "TimeoutError", "httpx.TransportError", "http.*"),
    }
    return merge_policies(base, over)


def fast_fail(**over: Any) -> dict[str, Any]:
    """One attempt, and not for long."""
    return merge_policies({"timeout": 5.0, "max_retries": 0, "on_timeout": "stop"}, over)


class PolicyRules(tuple[Any, ...]):
    """A list of rules, for `policies`. Its methods return a new one."""

    def add(self, matcher: Any, options: Mapping[str, Any]) -> PolicyRules:
        """In front: it counts before the others."""
        return PolicyRules(((matcher, dict(options)), *self))

    def append(self, matcher: Any, options: Mapping[str, Any]) -> PolicyRules:
        """At the end: for steps that no other rule matches."""
        return PolicyRules((*self, (matcher, dict(options))))

    def merge(self, others: Any) -> PolicyRules:
        """The others in front, without those that are in this list already."""
        return PolicyRules((*(one for one in others if one not in self), *self))
