"""A dashboard that a browser can open: library mode with a worker, and the server of `rival dashboard` beside it.

`python -m tests.browser.site` prints its link, also after each order, and ends when its input is closed. A line
`enlarge` adds runs of thousands of steps, a number so many runs; `delete` does what retention does, with one workflow;
`stop` ends the server, and `start` starts it again at its address. It is a process of its own: a process has one
embedded Rival, and other tests open theirs.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from rival_client import Rival
from rival_workers import embedded
from rival_workers.dashboard.launch import Launch
from rival_workers.dashboard.roles import ROLES
from rival_workers.dashboard.users import Users
from tests.browser import enlarged, forms, shop

#: Of the users, who have the names of their roles.
PASSWORD = "correct horse battery"
#: Where the pages say that Flower is.
FLOWER = "https://flower.example"
#: Links to other tools that each step has.
LINKS = "Logs=https://logs.example/?run={run_id}&step={step} Errors=https://errors.example/{workflow}"


def main() -> None:
    registry = shop.registry()
    forms.register(registry)
    enlarged.register(registry)
    with tempfile.TemporaryDirectory() as folder, embedded(registry=registry, concurrency=6) as rival:
        users = Users(Path(folder) / "users.toml")
        for role in ROLES:
            users.add(role, PASSWORD, role)
        settings = rival._process.settings.with_(flower_url=FLOWER, dashboard_links=LINKS)
        with ServedSite(rival, Launch(settings, port=0, directory=Path(folder))) as served:
            for version in (shop.letters(earlier=True), shop.letters()):
                rival._process.register_version(version)
            shop.seed(rival)
            print(served.link, flush=True)
            orders = {
                "enlarge": partial(enlarged.enlarge, rival),
                "delete": partial(rival._process.store.delete_ended_before, 0.0, 100, shop.SHORT_LIVED),
                "stop": served.stop,
                "start": served.start,
            }
            for line in sys.stdin:
                orders.get(line.strip(), partial(start_many, rival, line))()
                print(served.link, flush=True)


class ServedSite:
    """The server, which can be stopped and started again while workers and runs go on."""

    def __init__(self, rival: Rival, launch: Launch) -> None:
        self._rival, self._launch = rival, launch
        self._open = ExitStack()

    def __enter__(self) -> ServedSite:
        self.start()
        self._launch = replace(self._launch, port=int(self.link.split(":")[2].partition("/")[0]))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Each server has a token of its own, so the link is another one."""
        server = self._open.enter_context(self._launch.opened(self._rival))
        self._open.enter_context(server.in_background())
        self.link = server.link

    def stop(self) -> None:
        self._open.close()


def start_many(rival: Rival, number: str) -> None:
    run_ids = [f"paged-{one:03}" for one in range(int(number))]
    rival.run_many("slow_steps", [{"seconds": 0}] * len(run_ids), run_ids=run_ids)


if __name__ == "__main__":
    main()
