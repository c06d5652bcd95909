"""Starts the supervisor as a script, without the imports of `rival_workers/__init__.py`: they are most of a cold start,
and the supervisor uses none of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def package_without_its_init() -> ModuleType:
    package = ModuleType("rival_workers")
    package.__path__ = [str(Path(__file__).resolve().parents[1])]
    return package


if __name__ == "__main__":
    sys.modules["rival_workers"] = package_without_its_init()
    from rival_workers.dev.supervisor import main

    sys.exit(main(sys.argv[1]))
