"""The rules of the fleet in one process: when they are read, and what a process does that cannot read them."""

from __future__ import annotations

from rival_client.errors import DatabaseUnavailable
from rival_client.model.policies.matchers import default
from rival_client.model.policies.policy_rules import Rule
from rival_client.model.policies.rulebook import Rulebook
from rival_workers.runtime.fleet_rules import READ_AGAIN, FleetRules, SharedNumber


class Source:
    """Rules in a database that can be away."""

    def __init__(self) -> None:
        self.version, self.reads, self.is_away = 1, 0, False

    def read_rulebook(self) -> Rulebook:
        self.reads += 1
        if self.is_away:
            raise DatabaseUnavailable("away")
        return Rulebook(self.version, (Rule(default, {"timeout": float(self.version)}, 1),), {})


def test_rules_are_read_when_their_version_has_changed_and_not_before() -> None:
    source = Source()
    rules = FleetRules(source)
    for number in (1, 1, 1):
        rules.follow(number)
    assert (source.reads, rules.current().version) == (1, 1)
    source.version = 2
    rules.follow(2)
    assert (source.reads, rules.current().rules[0].options) == (2, {"timeout": 2.0})


def test_a_process_that_cannot_reach_its_database_keeps_the_last_rules_and_asks_once_a_second() -> None:
    source, seconds = Source(), [0.0]
    rules = FleetRules(source)
    rules.clock = lambda: seconds[0]
    rules.follow(1)
    source.version, source.is_away = 2, True
    for _ in range(5):
        rules.follow(2)
        assert rules.current().version == 1
    assert source.reads == 2
    source.is_away = False
    seconds[0] = READ_AGAIN - 0.01
    rules.follow(2)
    assert rules.current().version == 1
    seconds[0] = READ_AGAIN
    rules.follow(2)
    assert (source.reads, rules.current().version) == (3, 2)


def test_a_child_reads_the_rules_when_its_parent_says_that_they_have_changed() -> None:
    source, shared = Source(), SharedNumber()
    parent, child = FleetRules(source), FleetRules(source)
    parent.shared = child.shared = shared
    parent.read()
    parent.publish()
    assert (child.current().version, child.current().version, source.reads) == (1, 1, 2)
    source.version = 2
    assert child.current().version == 1, "it asks nobody else"
    parent.read()
    parent.publish()
    assert (child.current().version, source.reads) == (2, 4)
