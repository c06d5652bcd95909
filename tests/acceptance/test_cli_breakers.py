"""`rival breaker`: list, open, close and reset, as an operator types it."""

from __future__ import annotations

from tests.acceptance.conftest import Cli


def test_a_breaker_is_opened_listed_closed_and_reset(shop: Cli) -> None:
    shop("breaker", "ls").prints("no circuit breakers")
    shop("breaker", "open", "openai", code=2).complains(
        "rival: Invalid argument name: no registered workflow has a circuit breaker 'openai': give force for one that "
        "only runs or later workflows have."
    )
    shop("breaker", "open", "openai", "--by", "ana", "--force").prints("openai is open")
    shop("breaker", "open", "opnai", code=2).complains(
        "rival: Invalid argument name: no registered workflow has a circuit breaker 'opnai' (did you mean 'openai'?): "
        "give force for one that only runs or later workflows have."
    )
    shop("breaker", "ls").prints(
        """
        breaker  state  until  failures  probe  changed  by
        openai  open  closed by hand  0  <time>  ana
        """
    )
    shop("breaker", "open", "openai", "--seconds", "60", "--json").prints_json({"name": "openai", "open": True})
    [one] = shop("breaker", "ls", "--json").json
    assert (one["state"], one["opened"], one["probe_run"]) == ("open", 2, None)
    shop("breaker", "close", "openai").prints("openai is closed")
    shop("breaker", "close", "openai", code=1).prints("openai is not an open circuit breaker")
    shop("breaker", "reset", "openai", "--json").prints_json({"name": "openai", "reset": True})
    shop("breaker", "reset", "openai", code=1).prints("openai is not a circuit breaker that has counted or was opened")
