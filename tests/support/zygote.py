"""Many `rival` commands, each a process of its own, without paying for the imports each time: they are forked from a
process that has done them. `python -m tests.support.zygote` is that process."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


class Zygote:
    """The other side: one request at a time, by lines of JSON."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, args: tuple[str, ...], cwd: Path, env: dict[str, str], stdin: str) -> tuple[int, str, str]:
        with tempfile.TemporaryDirectory() as place:
            files = [str(Path(place) / name) for name in ("stdin", "stdout", "stderr")]
            Path(files[0]).write_text(stdin)
            self._write({"args": args, "cwd": str(cwd), "env": env, "files": files})
            code = self._read()
            return code, Path(files[1]).read_text(), Path(files[2]).read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def _write(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _read(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def _become(request: dict[str, Any]) -> None:
    """In the forked child: be `rival` as a shell would have started it."""
    for number, path in enumerate(request["files"]):
        os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    from rival_workers.cli.main import cli

    cli(request["args"])


def _serve() -> None:
    from rival_workers.cli.main import COMMANDS

    for module in set(COMMANDS.values()):
        importlib.import_module(f"rival_workers.cli.{module}")
    for late in ("psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "rich.table"):
        importlib.import_module(late)
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
