"""A dashboard that a browser can open: library mode with a worker, and the server of `rival dashboard` beside it.

`python -m tests.browser.site` prints its link, adds runs of thousands of steps for each line of its input, and ends
when its input is closed. It is a process of its own: a process has one embedded Rival, and other tests open theirs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rival_workers import embedded
from rival_workers.dashboard.launch import Launch
from rival_workers.dashboard.roles import ROLES
from rival_workers.dashboard.users import Users
from rival_workers.settings import WorkerSettings
from tests.browser import forms, shop
from tests.browser.enlarged import enlarge

#: Of the users, who have the names of their roles.
PASSWORD = "correct horse battery"


def main() -> None:
    registry = shop.registry()
    forms.register(registry)
    with tempfile.TemporaryDirectory() as folder, embedded(registry=registry, concurrency=6) as rival:
        users = Users(Path(folder) / "users.toml")
        for role in ROLES:
            users.add(role, PASSWORD, role)
        launch = Launch(WorkerSettings(), port=0, directory=Path(folder))
        with launch.opened(rival) as server, server.in_background():
            shop.seed(rival)
            print(server.link, flush=True)
            for _ in sys.stdin:
                enlarge(rival)
                print("enlarged", flush=True)


if __name__ == "__main__":
    main()
