"""What decides how steps run and fail, feature by feature: each names the test that shows it, on every surface.

The fields of policies, the options of a start and those of a whole workflow all belong to a feature, and all tests that
are named exist: a new option needs a row, and a test that is renamed or deleted is missed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import pytest

from rival_client.model.policies.option_fields import FIELDS
from rival_client.model.starts.run_options import CommonOptions, RunOptions
from rival_workers.cli.main import COMMANDS
from rival_workers.definition.options import WorkflowOptions
from tests.support.workers import ROOT

#: Tests whose tables have every field of a policy, or every option of a start.
EFFECTS = "contract/test_policy_fields.py::test_a_field_has_its_effect"
DEFINED = "contract/test_policy_surfaces.py::test_a_field_counts_wherever_a_definition_gives_it"
RULED = "contract/test_policy_surfaces.py::test_a_field_counts_wherever_a_rule_gives_it"
RECORDED = "contract/test_policy_surfaces.py::test_an_attempt_records_the_field_of_a_rule"
IN_FLOWS = "contract/test_policy_surfaces.py::test_a_step_of_a_flow_has_the_field_or_names_it"
ON_A_FLEET = "integration/test_policies_on_a_fleet.py::test_every_field_of_a_policy_has_its_effect_on_a_fleet"
STARTS = "contract/test_start_surfaces.py::test_an_option_counts_wherever_a_run_is_started_or_is_refused"
IN_HISTORY = "contract/test_start_surfaces.py::test_the_history_has_the_option"


@dataclass(frozen=True)
class Feature:
    #: The page of docs/how-to.
    guide: str
    options: set[str]
    #: On both stores.
    stores: str
    sync: str
    asynchronous: str
    builder_and_file: str
    flow: str
    #: With --json.
    command: str
    history: str
    #: On real processes.
    fleet: str
    chaos: str


def of_fields(guide: str, options: set[str], history: str, chaos: str, command: str = RULED) -> Feature:
    """What steps have as options: the tables have them on all surfaces."""
    return Feature(guide, options, EFFECTS, RULED, RULED, DEFINED, IN_FLOWS, command, history, ON_A_FLEET, chaos)


FEATURES = {
    "policies": Feature(
        "policies",
        {"policies", "policies_mode"},
        "contract/test_policies.py::test_rules_of_a_run_come_over_the_options_of_its_steps",
        RULED,
        RULED,
        "unit/test_policies.py::test_files_and_the_builder_have_policies",
        "contract/test_policies.py::test_steps_of_flows_and_of_nested_workflows_and_items_follow_rules",
        STARTS,
        "contract/test_policies.py::test_the_history_has_the_rules_of_the_run",
        ON_A_FLEET,
        "chaos/test_rules.py::test_workers_that_lose_their_database_keep_the_rules_and_then_follow_new_ones",
    ),
    "rules of the fleet": Feature(
        "fleet-rules",
        set(),
        "contract/test_policies.py::test_fleet_rules_come_over_the_rules_of_a_run_field_by_field",
        RULED,
        RULED,
        "contract/test_policies.py::test_a_rule_of_the_fleet_applies_after_the_keepers_next_round_and_not_without",
        "contract/test_flow_step_options.py"
        "::test_what_a_rule_of_the_fleet_has_and_a_flows_step_cannot_does_not_change_it",
        "acceptance/test_cli_policies.py::test_a_rule_of_the_fleet_is_set_listed_explained_and_removed",
        RECORDED,
        "chaos/test_limits.py::test_a_rule_of_the_fleet_is_effective_in_every_process_within_a_second",
        "chaos/test_rules.py::test_workers_that_lose_their_database_keep_the_rules_and_then_follow_new_ones",
    ),
    "retries": of_fields(
        "retries-and-timeouts",
        {
            *("max_retries", "max_attempts", "retry_on", "no_retry_on", "retry_budget"),
            *("backoff", "base_delay", "max_delay", "max_retry_after"),
        },
        "contract/test_retries.py::test_a_stored_error_says_why_it_was_not_retried",
        "chaos/test_killed_workers.py::test_workers_that_die_between_commit_and_publish_lose_nothing",
    ),
    "time limits": of_fields(
        "retries-and-timeouts",
        {"timeout", "on_timeout", "kill_on_timeout", "heartbeat", "queue_timeout"},
        "contract/test_step_times.py::test_a_step_that_no_worker_begins_in_time_fails_with_queue_timeout",
        "chaos/test_killed_workers.py::test_a_stuck_step_is_killed_after_its_timeout_and_its_worker_goes_on",
    ),
    "times of steps and runs": Feature(
        "run-times",
        {"deadline", "delay", "scheduled_at"},
        EFFECTS,
        STARTS,
        STARTS,
        DEFINED,
        IN_FLOWS,
        "acceptance/test_cli_starts.py::test_a_run_begins_later_and_has_a_deadline",
        IN_HISTORY,
        "integration/test_run_times.py::test_a_run_begins_at_its_time_and_ends_by_its_deadline",
        "chaos/test_policies.py::test_a_run_whose_worker_is_frozen_ends_by_its_deadline_and_is_undone",
    ),
    "fallbacks": of_fields(
        "fallbacks",
        {"fallback", "on_failure"},
        "contract/test_fallbacks.py::test_a_value_completes_the_step_in_the_commit_of_its_failure",
        "chaos/test_failures.py::test_a_worker_that_dies_between_a_failure_and_its_fallback_loses_nothing",
    ),
    "dead letters": Feature(
        "dead-letters",
        set(),
        "contract/test_dead_letters.py::test_a_failed_step_is_a_dead_letter_in_the_commit_of_its_failure",
        "contract/test_dead_letters.py::test_a_redriven_step_starts_again_and_is_not_a_dead_letter_any_more",
        "contract/test_dead_letters.py::test_the_async_client_has_the_same_verbs",
        DEFINED,
        "contract/test_flow_step_options.py::test_a_rule_for_a_flows_steps_that_these_cannot_have_is_refused",
        "acceptance/test_cli_dead_letters.py::test_dead_letters_are_listed_shown_redriven_and_dropped",
        "contract/test_dead_letters.py::test_a_failed_step_is_a_dead_letter_in_the_commit_of_its_failure",
        "chaos/test_policies.py::test_dead_letters_are_redriven_within_their_limit_while_a_worker_is_killed",
        "chaos/test_policies.py::test_dead_letters_are_redriven_within_their_limit_while_a_worker_is_killed",
    ),
    "limits": Feature(
        "limits",
        {"concurrency_limit", "rate_limit"},
        EFFECTS,
        "contract/test_limit_operations.py::test_a_raised_limit_lets_more_through_and_a_lowered_one_drains",
        "contract/test_limit_operations.py::test_the_async_client_does_the_same",
        DEFINED,
        IN_FLOWS,
        "acceptance/test_cli_limits.py::test_a_limit_is_listed_shown_set_and_removed",
        "contract/test_successors.py::test_the_end_of_a_run_starts_the_next_one_that_waits",
        ON_A_FLEET,
        "chaos/test_limits.py::test_workers_that_are_killed_again_and_again_never_exceed_a_limit_and_leave_no_slot",
    ),
    "queues and priorities": Feature(
        "queues",
        {"queue", "priority"},
        EFFECTS,
        RULED,
        RULED,
        DEFINED,
        IN_FLOWS,
        RULED,
        "contract/test_queues.py::test_every_message_of_a_step_goes_to_its_queue",
        "integration/test_queues.py::test_high_runs_start_before_those_that_wait_already",
        "chaos/test_rules.py::test_steps_stay_on_their_queue_and_follow_rules_for_labels_while_workers_are_killed",
    ),
    "circuit breakers": Feature(
        "circuit-breakers",
        {"circuit_breaker"},
        EFFECTS,
        "contract/test_breakers.py::test_operators_open_close_and_reset_breakers",
        "contract/test_breakers.py::test_the_async_client_has_the_same_verbs",
        DEFINED,
        "contract/test_breakers.py::test_a_step_of_a_flow_has_no_breaker",
        "acceptance/test_cli_breakers.py::test_a_breaker_is_opened_listed_closed_and_reset",
        "contract/test_breakers.py::test_a_breaker_opens_after_so_many_failures_and_stops_the_next_call_anywhere",
        ON_A_FLEET,
        "chaos/test_failures.py::test_steps_that_wait_for_a_breaker_run_although_the_worker_that_closes_it_is_killed",
    ),
    "idempotency keys": Feature(
        "idempotency",
        {"idempotency_key", "idempotency_ttl", "idempotency_scope"},
        EFFECTS,
        "contract/test_idempotency.py::test_a_key_that_is_dropped_lets_the_next_step_be_called",
        "contract/test_idempotency.py::test_keys_are_listed_newest_first_also_by_the_async_client",
        DEFINED,
        IN_FLOWS,
        "acceptance/test_cli_keys.py::test_a_key_is_listed_shown_and_dropped",
        "contract/test_idempotency.py::test_a_completed_step_is_not_called_again_in_another_run",
        ON_A_FLEET,
        "chaos/test_idempotency.py::test_50_runs_with_one_key_and_a_killed_owner_have_one_side_effect_and_50_results",
    ),
    "starts that share a run": Feature(
        "shared-runs",
        {"singleton", "on_conflict", "debounce", "max_wait", "collect", "batch", "within", "key"},
        STARTS,
        STARTS,
        STARTS,
        STARTS,
        "contract/test_shared_starts.py::test_what_has_no_meaning_elsewhere_is_refused",
        "acceptance/test_cli_starts.py::test_starts_share_a_run",
        "contract/test_shared_starts.py::test_a_skipped_start_says_which_run_has_the_place_and_is_in_its_history",
        "chaos/test_shared_starts.py::test_no_input_of_a_batch_is_lost_or_used_twice",
        "chaos/test_policies.py::test_runs_with_one_singleton_key_never_overlap_while_workers_are_killed",
    ),
    "hooks and signals": Feature(
        "hooks",
        {"hooks", "metadata", "log_level", "telemetry_prefix", "compensate_on_cancel"},
        "contract/test_hooks.py::test_hooks_are_called_around_each_attempt_and_at_the_end_of_the_run",
        RULED,
        RULED,
        "contract/test_hooks.py::test_the_builder_and_flows_have_hooks",
        "contract/test_hooks.py::test_a_checkpoint_is_reported_once_after_its_commit",
        RULED,
        "contract/test_hooks.py::test_a_hook_that_raises_is_recorded_and_changes_nothing",
        ON_A_FLEET,
        "chaos/test_policies.py::test_a_worker_that_is_killed_after_a_commit_calls_no_hook_twice",
    ),
    "inline steps": of_fields(
        "queues",
        {"execution_mode"},
        "contract/test_inline_steps.py::test_an_inline_step_follows_without_a_message_and_waits_for_the_next_one",
        "chaos/test_rules.py::test_inline_steps_that_are_committed_together_run_again_together_after_a_kill",
    ),
    "other schedulers": Feature(
        "other-schedulers",
        set(),
        *["unit/test_driver.py::test_layers_are_as_in_runs_and_each_value_says_where_it_comes_from"] * 7,
        *["unit/test_driver.py::test_a_decision_is_that_of_the_engine"] * 2,
    ),
    "labels": Feature(
        "labels",
        {"labels"},
        "contract/test_labels.py::test_every_step_sees_the_labels_of_its_run_also_after_a_message_and_an_event",
        STARTS,
        STARTS,
        STARTS,
        "contract/test_labels.py::test_children_have_the_labels_of_their_parent_and_their_own_over_them",
        "acceptance/test_cli_starts.py::test_a_labelled_run_is_found_by_its_label",
        IN_HISTORY,
        "chaos/test_rules.py::test_steps_stay_on_their_queue_and_follow_rules_for_labels_while_workers_are_killed",
        "chaos/test_rules.py::test_steps_stay_on_their_queue_and_follow_rules_for_labels_while_workers_are_killed",
    ),
}
#: Options of a whole workflow that are about other things.
ELSEWHERE = {"schedule", "retention"}
#: Of operators, for these features.
GROUPS = {"policy", "limit", "breaker", "key", "dlq"}
SURFACES = [one.name for one in fields(Feature) if one.name not in ("guide", "options")]


def test_every_option_belongs_to_a_feature() -> None:
    given = {*FIELDS, *RunOptions.__annotations__, *CommonOptions.__annotations__, *WorkflowOptions.__annotations__}
    assert set[str]().union(*(one.options for one in FEATURES.values())) == given - ELSEWHERE


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_shown_on_every_surface_by_a_test_that_exists(name: str) -> None:
    for surface in SURFACES:
        path, _, test = str(getattr(FEATURES[name], surface)).partition("::")
        found = re.search(rf"^def {test}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE)
        assert found, f"{surface} of {name}: {path} has no {test}"


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_has_a_guide_that_names_its_options(name: str) -> None:
    """Some are in the guides of related features, see test_policy_surfaces.py."""
    text = (ROOT / "docs" / "how-to" / f"{FEATURES[name].guide}.md").read_text()
    options = FEATURES[name].options
    assert not options or any(option in text for option in options)


def test_commands_for_operators_are_those_of_the_features() -> None:
    assert set(COMMANDS) >= GROUPS
    named = " ".join(one.command for one in FEATURES.values())
    files = {"policy": "policies", "limit": "limits", "breaker": "breakers", "key": "keys", "dlq": "dead_letters"}
    assert files.keys() == GROUPS
    assert all(f"test_cli_{file}.py" in named for file in files.values())
