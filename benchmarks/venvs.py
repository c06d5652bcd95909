"""A virtual environment per peer under `.bench/venvs`, built with uv and kept until its requirements change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".bench" / "venvs"

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "dbos": ("dbos>=3.3,<4", "psycopg[binary]>=3.3,<4", "sqlalchemy>=2.0.40,<3"),
    "celery": ("celery[redis]>=5.7,<5.8", "kombu>=5.7,<5.8", "redis>=8,<9"),
}


def find_uv() -> str:
    """uv from the PATH, or the one that the Makefile bootstraps."""
    bootstrapped = ROOT / ".tools" / "bin" / "uv"
    found = shutil.which("uv") or (str(bootstrapped) if bootstrapped.exists() else None)
    if found is None:
        raise FileNotFoundError(f"uv is neither on PATH nor at {bootstrapped}: `make install` brings it")
    return found


def stamp_of(name: str) -> str:
    """What the environment must have been built from to be used again."""
    return "\n".join([sys.version, *REQUIREMENTS[name]])


def peer_python(name: str) -> str:
    """The interpreter of a peer's environment, which is built when it is missing or outdated."""
    venv = PLACE / name
    stamp = venv / "stamp"
    if not (stamp.exists() and stamp.read_text() == stamp_of(name)):
        build(venv, REQUIREMENTS[name])
        stamp.write_text(stamp_of(name))
    return str(venv / "bin" / "python")


def build(venv: Path, requirements: tuple[str, ...]) -> None:
    """From nothing: a half-built environment has no stamp, so it ends up here again."""
    print(f"building {venv}", file=sys.stderr, flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    uv = find_uv()
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True, timeout=120)
    python = str(venv / "bin" / "python")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--link-mode=copy", "--python", python, *requirements],
        check=True,
        timeout=600,
    )


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """The installed versions, for the record."""
    code = "import sys, importlib.metadata as m; print(*[m.version(p) for p in sys.argv[1:]])"
    printed = subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True)
    return dict(zip(packages, printed.stdout.split(), strict=True))
