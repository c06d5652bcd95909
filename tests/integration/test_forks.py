"""A client that was used before a fork works in the parent and in the children: some servers load their application
first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.workers import Workers

QUICK = """
def double(input):
    return 2 * input["n"]

steps = [double]
"""
PRODUCER = """
import asyncio, os, sys
from rival_client import AsyncRival, Rival

rival, later = Rival(), AsyncRival()

def use(n):
    first = rival.run("quick", {"n": n}).wait(timeout=30).result
    async def again():
        return (await (await later.run("quick", {"n": n + 1})).wait(timeout=30)).result
    return [first, asyncio.run(again())]

assert use(1) == [2, 4]
children = []
for n in (10, 20, 30):
    child = os.fork()
    if child == 0:
        right = [use(n + turn) == [2 * (n + turn), 2 * (n + turn + 1)] for turn in range(3)]
        os._exit(0 if all(right) else 1)
    children.append(child)
used = [use(100 + turn) for turn in range(5)]
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
used += [use(200)]
print(used)
"""


def test_parent_and_children_use_a_client_that_was_used_before(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "quick.py").write_text(QUICK)
    workers.start(tmp_path / "quick.py")
    producer = subprocess.run(
        [sys.executable, "-c", PRODUCER], env=workers.env, capture_output=True, text=True, timeout=90
    )
    assert producer.returncode == 0, producer.stderr
    assert producer.stdout.strip() == str([*[[200 + 2 * n, 202 + 2 * n] for n in range(5)], [400, 402]])
