"""`rival key`: list, show and drop idempotency keys, as an operator types it."""

from __future__ import annotations

from sqlalchemy import insert

from rival_client.db.idempotency_tables import keys
from rival_client.db.types import after, now
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.payload import Json
from rival_client.settings import Settings
from rival_workers.store import open_store
from tests.acceptance.conftest import Cli

OF = ("--workflow", "greet", "--step", "greet")


def complete_a_key(settings: Settings) -> None:
    name = KeyName("greet:ann", "greet", "greet")
    owner = {"run_id": "r1", "path": "greet", "holder": "greet", "fingerprint": "f", "ttl": 60.0}
    ended = {"result": Json('{"text":"hello"}'), "created_at": now(), "completed_at": now(), "expires_at": after(60)}
    store = open_store(settings.require_database())
    with store.database.transaction() as connection:
        named = {"key": name.key, "workflow": "greet", "step": "greet", "digest": name.digest}
        connection.execute(insert(keys).values(**named, **owner, **ended))
    store.close()


def test_a_key_is_listed_shown_and_dropped(shop: Cli, settings: Settings) -> None:
    shop("key", "ls").prints("no idempotency keys")
    complete_a_key(settings)
    shop("key", "ls").prints(
        """
        key  of  status  run  step  waiting  expires
        greet:ann  greet/greet  completed  r1  greet  0  <time>
        """
    )
    [listed] = shop("key", "ls", "--workflow", "greet", "--json").json
    shown = shop("key", "show", "greet:ann", *OF, "--json").json
    assert shown == listed
    assert (shown["status"], shown["result"], shown["run_id"]) == ("completed", {"text": "hello"}, "r1")
    shop("key", "show", "greet:ann", *OF).prints(
        """
        greet:ann: completed, by r1/greet, 0 waiting
        expires <time>
        {
          "text": "hello"
        }
        """
    )
    shop("key", "drop", "greet:ann", *OF, "--by", "ana").prints("greet:ann is dropped")
    [freed] = shop("key", "ls", "--json").json
    assert freed["status"] == "free"


def test_a_key_that_does_not_exist_is_an_error(shop: Cli) -> None:
    shop("key", "show", "charge:7", code=1).complains(
        "rival: Unknown idempotency key 'charge:7'. `rival key ls` lists them."
    )
    unknown = "Unknown idempotency key 'charge:7'. `rival key ls` lists them."
    assert shop("key", "show", "charge:7", "--json", code=1).error == {"type": "RivalError", "message": unknown}
    shop("key", "drop", "charge:7", code=1).prints("the idempotency key charge:7 has no result")
    shop("key", "drop", "charge:7", "--json", code=1).prints_json({"key": "charge:7", "dropped": False})
    shop("key", "show", "charge:7", "--step", "charge", code=2).complains(
        "rival: Invalid argument step: a step belongs to a workflow: give `workflow`, too."
    )
