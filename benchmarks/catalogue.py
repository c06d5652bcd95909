"""Everything that can be measured: what the harness asks drivers for, and which figures come of it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.disciplines import SHARED

#: Measured as often as the shared disciplines, but only Rival has them.
RIVAL_REPEATED = ("bare_commits", "run_many", "for_each", "long_run", "checkpoints", "sleeps", "mixed")
#: Measured once per benchmark: each takes its own repetitions.
POLICIES = (
    *("ruled", "limited", "limited_slow", "hot_key", "held", "tickets", "pace", "fairness", "low", "slots", "slot_use"),
    *("lost_messages", "rules", "probes", "debounce"),
)
ONCE = ("commits", "wal", "takeover", "continuations", "events", "viewers", "sleeping", "finished", *POLICIES)
#: Names that stand for several disciplines.
GROUPS = {"policies": POLICIES}
DISCIPLINES = (*SHARED, *RIVAL_REPEATED, *ONCE)
#: Of those that are measured once, the ones that peers have, too.
ONCE_SHARED = {
    "commits": ("rival", "dbos", "celery"),
    "wal": ("rival", "dbos"),
    "takeover": ("rival", "dbos", "celery"),
}


@dataclass(frozen=True)
class Figure:
    """A row of the report: the measurement's name, its words, and whether more is better."""

    name: str
    words: str
    more: bool


FIGURES = (
    Figure("steps_per_s", "steps/s, no-op (n runs x 5 steps, 2 workers)", True),
    Figure("context_steps_per_s", "steps/s, with input, steps and log, 200-byte results", True),
    Figure("kb10_steps_per_s", "steps/s, results of 10 KB", True),
    Figure("kb100_steps_per_s", "steps/s, results of 100 KB", True),
    Figure("starts_per_s", "runs started/s, one by one", True),
    Figure("bare_commits_per_s", "rows inserted/s by one connection, a commit each, without any system", True),
    Figure("run_many_per_s", "runs started/s, run_many", True),
    Figure("latency_10_steps_ms", "10-step run, idle system (ms)", False),
    Figure("wait_lag_ms", "commit to wait returning (ms)", False),
    Figure("retry_timer_error_ms", "timer error of a 1 s retry (ms)", False),
    Figure("takeover_s", "takeover after SIGKILL (s)", False),
    Figure("commits_per_step", "commits per step", False),
    Figure("wal_bytes_per_step/noop", "write-ahead log per step (bytes), no-op", False),
    Figure("wal_bytes_per_step/kb10", "write-ahead log per step (bytes), 10 KB", False),
    Figure("wal_bytes_per_step/kb100", "write-ahead log per step (bytes), 100 KB", False),
    Figure("for_each_items_per_s", "for_each of no-op items: items/s", True),
    Figure("for_each_last_to_first", "its last quarter's speed to its first's", True),
    Figure("for_each_memory_mb", "its fleet's growth in memory (MB)", False),
    Figure("long_run_ms_per_step/first", "1,000-step run: ms per step, first tenth", False),
    Figure("long_run_ms_per_step/last", "1,000-step run: ms per step, last tenth", False),
    Figure("continuations_per_s", "a flow that continues: continuations per second", True),
    Figure("continuations_together_per_s", "16 flows that continue at the same time: continuations per second", True),
    Figure("continuation_rows", "rows that these continuations leave (all tables)", False),
    Figure("checkpoints_per_s", "steps of one flow, one after the other, per second", True),
    Figure("checkpoints_together_per_s", "steps of 16 flows at the same time, per second", True),
    Figure("sleep_error_ms", "a flow's sleep: how late it wakes (ms)", False),
    Figure("events_per_s", "runs woken by events, per second", True),
    Figure("flow_events_per_s", "flows woken by events, per second", True),
    Figure("steps_per_s_beside_viewers/none", "steps/s without a dashboard", True),
    Figure("steps_per_s_beside_viewers/20", "steps/s beside a dashboard with 20 viewers", True),
    Figure("viewers_cost_percent", "what these viewers cost (%)", False),
    Figure("mixed_p50_ms/quick_only", "steady load of quick runs: p50 (ms)", False),
    Figure("mixed_p50_ms/with_slow", "the same, 1 % of them take 1 s: p50 of the others (ms)", False),
    Figure("mixed_p99_ms/quick_only", "steady load of quick runs: p99 (ms)", False),
    Figure("mixed_p99_ms/with_slow", "the same, 1 % of them take 1 s: p99 of the others (ms)", False),
    Figure("steps_per_s_beside_sleeping/none", "steps/s with no sleeping runs", True),
    Figure("steps_per_s_beside_sleeping/many", "steps/s with a million (quick: 20,000)", True),
    Figure("sweep_ms_beside_new_sleeping/none", "a keeper's looks with no sleeping runs (ms)", False),
    Figure("sweep_ms_beside_new_sleeping/many", "a keeper's looks with a million that have just come (ms)", False),
    Figure("sweep_ms_beside_sleeping/none", "a keeper's looks with no sleeping runs, later (ms)", False),
    Figure("sweep_ms_beside_sleeping/many", "a keeper's looks with a million, later (ms)", False),
    Figure("steps_per_s_by_finished_runs/0", "steps/s with 0 finished runs", True),
    Figure("steps_per_s_by_finished_runs/100000", "steps/s with 100,000 finished runs", True),
    Figure("steps_per_s_by_finished_runs/1000000", "steps/s with 1,000,000 finished runs", True),
    Figure("ruled_ratio", "steps/s with a fleet rule for all steps to none", True),
    Figure("ruled_cpu_ratio", "the workers' processor time per step with it to none", False),
    Figure("limited_steps_per_s/noop", "steps/s without limits", True),
    Figure("limited_steps_per_s/keyed", "steps/s, all with one limit of 5 for each of 1,000 keys", True),
    Figure("limited_steps_per_s/keyed_each", "steps/s, each step with such a limit of its own", True),
    Figure("limited_steps_per_s/wide", "steps/s, all with a limit of 500 that is never reached", True),
    Figure("limited_steps_per_s/wide_each", "steps/s, each step with such a limit of its own", True),
    Figure("limited_ratio/keyed", "one limit with 1,000 keys to none", True),
    Figure("limited_ratio/keyed_each", "own limits with 1,000 keys to none", True),
    Figure("limited_ratio/wide", "one limit that is never reached to none", True),
    Figure("limited_ratio/wide_each", "own limits that are never reached to none", True),
    Figure("limited_slow_steps_per_s/noop", "steps/s without limits, commits of 2 ms", True),
    Figure("limited_slow_steps_per_s/keyed", "steps/s, one limit of 5 for each of 1,000 keys, commits of 2 ms", True),
    Figure("limited_slow_ratio/keyed", "one limit with 1,000 keys to none, commits of 2 ms", True),
    Figure("hot_key_finishes_per_s", "hot key, 5 at once, commits of 2 ms: finishes/s", True),
    Figure("hot_key_arrivals_per_s", "hot key: arrivals/s in the same seconds", True),
    Figure("hot_key_idle_ms", "hot key: a slot is idle between two steps for (ms), p50", False),
    Figure("hot_key_idle_p99_ms", "hot key: a slot is idle between two steps for (ms), p99", False),
    Figure(
        "hot_key_finishes_per_s/held", "hot key beside an old snapshot (quick: of 40 s, else 10 min): finishes/s", True
    ),
    Figure("hot_key_held_ratio", "hot key beside an old snapshot to before", True),
    Figure("tickets_ms/none", "claim and finish with a limit, nothing waits (ms)", False),
    Figure("tickets_ms/many", "claim and finish with a limit, 100,000 wait (ms)", False),
    Figure("tickets_ratio", "claim and finish with 100,000 waiting to none", False),
    Figure("tickets_sweep_ms/none", "a keeper's looks, nothing waits (ms)", False),
    Figure("tickets_sweep_ms/many", "a keeper's looks, 100,000 wait (ms)", False),
    Figure("pace_worst_second", "rate of 50/s, one of 3 workers killed: most starts in any second", False),
    Figure("pace_used", "rate of 50/s: part of it that was used", True),
    Figure("pace_other_run_ms/alone", "one-step run, no rate in use (ms)", False),
    Figure("pace_other_run_ms/beside", "one-step run while hundreds of steps wait for the rate (ms)", False),
    Figure("fairness_jain", "20 tenants with 1:20 waiting at one limit: Jain's index", True),
    Figure("fairness_longest_wait_turns", "longest wait of the smallest of them (rounds of all)", False),
    Figure("low_beside_high_s", "low step, the fleet overloaded with high ones: until it starts (s)", False),
    Figure("slot_returned_s", "slot of a killed worker: until the next one runs (s; lease 2 s)", False),
    Figure("slots_at_once/one_kill", "limit of 5, one of 3 workers killed: most at once", False),
    Figure("slots_at_once/kills", "limit of 5, a worker killed every 2 s: most at once", False),
    Figure("slots_used/one_kill", "limit of 5, one of 3 workers killed: part of the slots that worked", True),
    Figure("slots_used/kills", "limit of 5, a worker killed every 2 s: part of the slots that worked", True),
    Figure("lost_message_s", "granted step whose message was lost: until it starts (s; grace 10 s)", False),
    Figure("rule_effective_p99_s", "fleet rule: effective in all processes, p99 (s)", False),
    Figure("probes_in_100_rounds", "half-open breaker: probes in 100 rounds of 20 claims", False),
    Figure("refused_elsewhere_in_100_rounds", "breaker opened: refused at the next claim elsewhere, of 100", True),
    Figure("debounce_starts_per_s", "debounce with one key, 500 starts/s wanted: starts/s", True),
    Figure("debounce_runs_per_burst", "debounce: runs that come of a burst", False),
    Figure("debounce_lost_or_twice", "debounce: inputs that are in no run, or in two", False),
    Figure("lease_s", "lease in the takeover discipline (s)", False),
)
