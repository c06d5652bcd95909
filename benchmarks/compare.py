"""`python -m benchmarks.compare REV [--only …] [--rounds N] [--full] [--own]`: this tree against another one of Rival.

Both sides are measured by this tree's benchmarks, on the same servers, in turns; the ratio is this tree's figure
divided by the other's. A side is a folder of links: the packages of one commit, the benchmarks of this tree, or with
`--own` those of the same commit.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import machine, report, venvs
from benchmarks.__main__ import _leave
from benchmarks.catalogue import DISCIPLINES
from benchmarks.lines import Measurement
from benchmarks.loads import load_named
from benchmarks.servers import PLACE, driver_env, log_of, own_stack
from benchmarks.sides import Program, Side, alternate
from rival_workers.dev.stack import Stack

PACKAGES = ("rival_client", "rival_workers")
#: What takes minutes is measured only when it is asked for.
USUAL = (
    *("starts", "run_many", "latency", "retries", "steps", "context_steps", "results_10_kb"),
    *("for_each", "checkpoints", "sleeps", "continuations", "commits"),
)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("revision", help="the commit to compare with, as git names it, or a folder that has its files")
    parser.add_argument("--only", default=",".join(USUAL), help=f"some of {', '.join(DISCIPLINES)}")
    parser.add_argument("--rounds", type=int, help="how often each side is measured in each discipline")
    parser.add_argument("--full", action="store_true", help="the counts of the full benchmark")
    parser.add_argument(
        "--own", action="store_true", help="measure a commit that this tree's benchmarks cannot import by its own ones"
    )
    given = parser.parse_args(arguments)
    given.disciplines = given.only.split(",")
    unknown = sorted(set(given.disciplines) - set(DISCIPLINES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(DISCIPLINES)}")
    return given


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The files of another commit, in a worktree that is removed at the end; or a folder that has them, as it is."""
    if Path(revision).is_dir():
        yield Path(revision).resolve()
        return
    git = ["git", "-C", str(venvs.ROOT)]
    commit = subprocess.run(
        [*git, "rev-parse", "--verify", "--short", f"{revision}^{{commit}}"], capture_output=True, text=True
    )
    if commit.returncode:
        sys.exit(f"no such commit: {revision}")
    tree = PLACE / f"tree-{commit.stdout.strip()}"
    subprocess.run([*git, "worktree", "add", "--force", "--detach", str(tree), commit.stdout.strip()], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)


def linked(name: str, tree: Path, benchmarks: Path) -> Path:
    """A folder with the packages of one tree and the benchmarks of one."""
    folder = PLACE / f"side-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package in PACKAGES:
        (folder / package).symlink_to(tree / package)
    (folder / "benchmarks").symlink_to(benchmarks / "benchmarks")
    return folder


def open_side(name: str, folder: Path, load: str, stack: Stack) -> Side:
    """A driver that imports what is in the folder."""
    command = [sys.executable, "-m", "benchmarks.rival_driver", load]
    program = Program(name, command, driver_env(stack, name, folder), log_of(name), folder)
    return Side(program, load_named(load).limit_s)


def measurements(sides: Sequence[Side], disciplines: Sequence[str], rounds: int) -> Iterator[Measurement]:
    """Of both sides, in turns."""
    for side in sides:
        side.prepare()
    for discipline in disciplines:
        yield from alternate(sides, discipline, rounds)


def main() -> int:
    """Prints the figures of both and their ratios."""
    given = parse_arguments()
    signal.signal(signal.SIGTERM, _leave)
    load = "full" if given.full else "quick"
    rounds = given.rounds or load_named(load).repeats
    with own_stack() as stack, checked_out(given.revision) as tree, ExitStack() as exits:
        about = machine.conditions(stack.database_url, load)
        folders = {"new": linked("new", venvs.ROOT, venvs.ROOT)}
        folders["old"] = linked("old", tree, tree if given.own else venvs.ROOT)
        sides = [open_side(name, folder, load, stack) for name, folder in folders.items()]
        for side in sides:
            exits.callback(side.stop)
        scores = report.scores_of(measurements(sides, given.disciplines, rounds))
    print(f"new: {about['commit']}, old: {given.revision}\n")
    print(report.table(scores, ["new", "old"]))
    said = machine.warning(about["busy_before"])
    if said:
        print(said)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
