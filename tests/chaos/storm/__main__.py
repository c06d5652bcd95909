"""`python -m tests.chaos.storm`: a storm for each pool, one after the other, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import logging
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chaos.storm.fleet import SHAPES
from tests.chaos.storm.report import Report
from tests.chaos.storm.storm import Options, Storm
from tests.support.workers import ROOT


def main() -> int:
    options = _parser().parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    print(f"seed {seed}", flush=True)
    if options.pool == "all":
        codes = [_in_a_process(pool, seed, options) for pool in SHAPES]
        return max(codes)
    return _storm(options.pool, seed, options)


def _in_a_process(pool: str, seed: int, options: argparse.Namespace) -> int:
    """A process each: a mount namespace and the threads of one storm must not meet those of the next."""
    command = [sys.executable, "-m", "tests.chaos.storm", "--pool", pool, "--seed", str(seed)]
    command += ["--minutes", str(options.minutes), "--rate", str(options.rate), *(["--json"] if options.json else [])]
    command += ["--logs", str(options.logs)]
    return subprocess.run(command, check=False).returncode


def _storm(pool: str, seed: int, options: argparse.Namespace) -> int:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    logging.basicConfig(level=logging.ERROR)
    density = 2.5 if options.minutes < 1 else 1.0
    with tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as name:
        storm = Storm(Options(pool, seed, options.minutes, options.rate, density=density), Path(name), say)
        report = storm.run()
        if not report.passed:
            _keep(storm, report, options.logs / f"{pool}-{seed}")
    print(json.dumps(report.as_json(), default=str) if options.json else "\n".join(report.lines()), flush=True)
    return 0 if report.passed else 1


def _keep(storm: Storm, report: Report, directory: Path) -> None:
    storm.keep_logs(directory)
    (directory / "report.json").write_text(json.dumps(report.as_json(), default=str, indent=1))
    print(f"logs of the workers and the whole report: {directory}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.storm", description=__doc__)
    parser.add_argument("--seed", type=int, help="the order of faults and load; random unless given")
    parser.add_argument("--pool", default="all", choices=["all", *SHAPES])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults happen, per pool")
    parser.add_argument("--rate", type=float, default=6.0, help="runs started in a second, at most")
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    parser.add_argument("--logs", type=Path, default=ROOT / ".rival" / "chaos", help="where logs of a failure are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
