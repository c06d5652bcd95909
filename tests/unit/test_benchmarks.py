"""The benchmarks' own arithmetic: whose turn it is, which configuration counts, what a ratio divides."""

from __future__ import annotations

import pytest

from benchmarks import report
from benchmarks.__main__ import parse_arguments
from benchmarks.catalogue import DISCIPLINES, FIGURES
from benchmarks.lines import Measurement
from benchmarks.machine import warning
from benchmarks.sides import alternate
from tests.support.output import as_expected


class Recorder:
    """A side that only notes when it was asked."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name = name
        self._asked = asked

    def ask(self, discipline: str) -> list[Measurement]:
        self._asked.append(self.name)
        return [Measurement(self.name, discipline, (1.0,))]


def test_sides_take_turns_and_each_round_begins_with_another_one() -> None:
    asked: list[str] = []
    sides = [Recorder(name, asked) for name in ("a", "b", "c")]
    found = list(alternate(sides, "steps", 3))  # type: ignore[arg-type]
    assert asked == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert len(found) == 9


def test_repetitions_of_one_configuration_are_collected() -> None:
    found = [Measurement("rival", "steps_per_s", (value,)) for value in (10.0, 30.0, 20.0)]
    (score,) = report.scores_of(found).values()
    assert score.values == (10.0, 30.0, 20.0)
    assert score.median == 20.0
    assert score.spread == (10.0, 30.0)


def test_a_hundred_repetitions_have_a_99th_percentile() -> None:
    values = tuple(float(value) for value in range(1, 101))
    assert report.cell(Measurement("rival", "retry_timer_error_ms", values)) == "50.5 (1.00..100, p99 99.0)"
    assert report.cell(Measurement("rival", "retry_timer_error_ms", values[:99])) == "50.0 (1.00..99.0)"


@pytest.mark.parametrize(("name", "best"), [("steps_per_s", "solo"), ("wait_lag_ms", "prefork")])
def test_the_best_configuration_counts_in_each_discipline(name: str, best: str) -> None:
    found = [Measurement("celery", name, (5.0,), "", "prefork"), Measurement("celery", name, (7.0,), "", "solo")]
    (score,) = report.scores_of(found).values()
    assert score.configuration == best
    assert score.note == "prefork: 5, solo: 7"


def test_a_ratio_divides_medians_and_is_missing_where_a_side_has_no_figure() -> None:
    scores = report.scores_of(
        [
            Measurement("new", "steps_per_s", (30.0,)),
            Measurement("old", "steps_per_s", (20.0,)),
            Measurement("old", "x"),
        ]
    )
    assert report.ratio(scores, "steps_per_s", "new", "old") == "1.50 x"
    assert report.ratio(scores, "x", "new", "old") == "-"


def test_only_names_systems_and_disciplines() -> None:
    chosen = parse_arguments(["--only", "rival,steps,latency"])
    assert chosen.systems == ["rival"]
    assert chosen.disciplines == ["latency", "steps"]
    assert not chosen.everything
    assert parse_arguments([]).everything


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--only", "speed"])
    usage, problem = capsys.readouterr().err.splitlines()
    assert usage == "usage: python -m benchmarks [-h] [--quick] [--only ONLY] [--json JSON]"
    expected = "python -m benchmarks: error: unknown: speed; there are rival, dbos, celery, starts, …"
    assert as_expected(expected, problem) == expected


def test_a_busy_machine_causes_a_warning() -> None:
    assert warning(0.05) is None
    assert warning(0.5) == "WARNING: other programs use 50% of this machine; the figures cannot be trusted"


def test_no_two_figures_have_the_same_name() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert len(set(DISCIPLINES)) == len(DISCIPLINES)
