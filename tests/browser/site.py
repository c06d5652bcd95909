"""A dashboard that a browser can open: library mode with a worker, and the server of `rival dashboard` beside it.

`python -m tests.browser.site` prints its link, and ends when its input is closed. A line `enlarge` adds runs of
thousands of steps, a number so many runs. It is a process of its own: a process has one embedded Rival, and other tests
open theirs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rival_client import Rival
from rival_workers import embedded
from rival_workers.dashboard.launch import Launch
from rival_workers.dashboard.roles import ROLES
from rival_workers.dashboard.users import Users
from tests.browser import forms, shop
from tests.browser.enlarged import enlarge

#: Of the users, who have the names of their roles.
PASSWORD = "correct horse battery"
#: Where the pages say that Flower is.
FLOWER = "https://flower.example"


def main() -> None:
    registry = shop.registry()
    forms.register(registry)
    with tempfile.TemporaryDirectory() as folder, embedded(registry=registry, concurrency=6) as rival:
        users = Users(Path(folder) / "users.toml")
        for role in ROLES:
            users.add(role, PASSWORD, role)
        settings = rival._process.settings.with_(flower_url=FLOWER)
        launch = Launch(settings, port=0, directory=Path(folder))
        with launch.opened(rival) as server, server.in_background():
            for version in (shop.letters(earlier=True), shop.letters()):
                rival._process.register_version(version)
            shop.seed(rival)
            print(server.link, flush=True)
            for line in sys.stdin:
                enlarge(rival) if line.strip() == "enlarge" else start_many(rival, int(line))
                print("done", flush=True)


def start_many(rival: Rival, number: int) -> None:
    inputs = [{"seconds": 0}] * number
    rival.run_many("slow_steps", inputs, run_ids=[f"paged-{one:03}" for one in range(number)])


if __name__ == "__main__":
    main()
