"""Type checkers in strict mode see what users' code does: they accept a right program, and report each mistake in a
wrong one. mypy and pyright (as basedpyright, which comes from the package index with its own Node.js).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rival_workers import embedded
from tests.support.workers import ROOT
from tests.typed import shop

TYPED = ROOT / "tests" / "typed"
#: File name and line -> the rules that are broken there.
Found = dict[tuple[str, int], set[str]]


def mypy() -> Found:
    """With the settings of the project, which are strict, and so with the cache that `make lint` has filled."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file", "pyproject.toml", str(TYPED)]
    said = _output(command)
    found: Found = {}
    for name, line, rule in re.findall(r"([\w.]+):(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE):
        found.setdefault((name, int(line)), set()).add(rule)
    assert found, said
    return found


def pyright() -> Found:
    command = [str(Path(sys.executable).with_name("basedpyright")), "--project", str(TYPED), "--outputjson"]
    report = json.loads(_output([*command, "--pythonpath", sys.executable]))
    assert report["summary"]["filesAnalyzed"] == len(list(TYPED.glob("*.py")))
    found: Found = {}
    for one in report["generalDiagnostics"]:
        where = Path(one["file"]).name, one["range"]["start"]["line"] + 1
        found.setdefault(where, set()).add(one.get("rule", "syntax"))
    return found


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_strict_checker_accepts_the_right_program_and_reports_each_mistake(checker: Callable[[], Found]) -> None:
    found, expected = checker(), mistakes(0 if checker is mypy else 1)
    assert not {where: rules for where, rules in found.items() if where[0] != "mistakes.py"}
    reported = {line: rules for (name, line), rules in found.items() if name == "mistakes.py"}
    assert set(reported) == set(expected)
    assert {line: rule for line, rule in expected.items() if rule not in reported[line]} == {}, reported


def mistakes(which: int) -> dict[int, str]:
    """Line -> rule, by the marks in the file: the first rule is mypy's, the second pyright's."""
    lines = (TYPED / "mistakes.py").read_text().splitlines()
    marked = {n: re.search(r"# wrong: ([\w-]+), (\w+)$", line) for n, line in enumerate(lines, 1) if "wrong: " in line}
    return {number: mark[which + 1] for number, mark in marked.items() if mark is not None}


@pytest.mark.slow
def test_the_right_program_gives_what_its_types_say() -> None:
    with embedded() as rival:
        assert shop.buy(rival).unwrap() == {
            "receipt": "o-1/EUR 7 o-1/USD o-1/EUR",
            "quoted": 13,
            "in stock": 14,
            "by": "Ann",
        }
        assert rival.run(shop.delivery).get(60) == [2, 6, 8, 10, 12, 7, 16]
        assert rival.run(shop.orders, shop.Order(order_id="a", amount=3)).get(60) == "Aorders A completedcompleted"
