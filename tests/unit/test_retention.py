"""A workflow's own retention, as its file or builder says it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from rival_workers import DefinitionError, create_workflow, register_workflow_file
from rival_workers.definition.registry import Registry
from tests.support.output import whole


def clean() -> int:
    return 1


def test_a_file_says_how_long_its_runs_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "brief.py"
    file.write_text("def one(): return 1\nretention = 60\nsteps = [one]\n")
    assert register_workflow_file(file, Registry()).retention == 60


def test_the_builder_says_the_same_and_the_version_stays() -> None:
    kept = create_workflow("w").step(clean).retention(dt.timedelta(days=1)).build()
    plain = create_workflow("w").step(clean).build()
    assert (kept.retention, plain.retention) == (86_400, None)
    assert kept.version == plain.version


@pytest.mark.parametrize("value", [-1, "1d", True, float("nan"), float("inf"), dt.timedelta(days=-1)])
def test_an_invalid_duration_is_reported_with_its_cure(value: object) -> None:
    with pytest.raises(
        DefinitionError, match=whole("…: workflow 'w': retention: give seconds or a timedelta (0: for ever), not …")
    ):
        create_workflow("w").step(clean).retention(value).build()  # type: ignore[arg-type]
