"""Calls of several threads are made together if they come while another is being made."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from rival_workers.store.postgres import flow_groups
from rival_workers.store.postgres.flow_groups import MOST, JoinedCalls
from tests.support.threads import join_all
from tests.support.workers import wait_until


class Maker:
    """Doubles numbers, and holds its first call until it is let go."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def make(self, calls: Sequence[int]) -> list[int]:
        self.groups.append(list(calls))
        self.has_begun.set()
        assert self.may_go_on.wait(20)
        if 13 in calls:
            raise ValueError("not 13")
        return [2 * call for call in calls]


class Caller(threading.Thread):
    def __init__(self, joined: JoinedCalls[int, int], number: int) -> None:
        super().__init__(daemon=True)
        self._joined, self._number = joined, number
        self.answer: int | BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._joined.call(self._number)
        except ValueError as error:
            self.answer = error

    def end(self) -> int | BaseException | None:
        join_all([self])
        return self.answer


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def joined(maker: Maker) -> JoinedCalls[int, int]:
    return JoinedCalls(maker.make)


def started(joined: JoinedCalls[int, int], maker: Maker, numbers: Sequence[int]) -> list[Caller]:
    """The first call is being made, and the others wait for its end."""
    first, *others = numbers
    callers = [Caller(joined, first)]
    assert maker.has_begun.wait(20)
    for count, number in enumerate(others, 1):
        callers.append(Caller(joined, number))
        wait_until(lambda count=count: len(joined._waiting) == count)  # type: ignore[misc]
    return callers


def test_a_call_that_comes_alone_is_made_at_once_in_its_own_thread(maker: Maker, joined: JoinedCalls[int, int]) -> None:
    maker.may_go_on.set()
    assert [joined.call(1), joined.call(2)] == [2, 4]
    assert maker.groups == [[1], [2]]


def test_calls_that_come_meanwhile_are_made_together_and_each_gets_its_own_answer(
    maker: Maker, joined: JoinedCalls[int, int]
) -> None:
    callers = started(joined, maker, [1, 2, 3, 4])
    maker.may_go_on.set()
    assert [one.end() for one in callers] == [2, 4, 6, 8]
    assert maker.groups == [[1], [2, 3, 4]]


def test_what_a_group_raises_each_of_its_threads_raises_and_the_next_call_is_made(
    maker: Maker, joined: JoinedCalls[int, int]
) -> None:
    callers = started(joined, maker, [1, 13, 3])
    maker.may_go_on.set()
    first, *others = [one.end() for one in callers]
    assert first == 2
    assert [str(one) for one in others] == ["not 13", "not 13"]
    assert joined.call(5) == 10


def test_a_group_has_a_largest_size(maker: Maker, joined: JoinedCalls[int, int]) -> None:
    callers = started(joined, maker, [0, *range(100, 100 + MOST + 5)])
    maker.may_go_on.set()
    assert [one.end() for one in callers] == [0, *range(200, 200 + 2 * (MOST + 5), 2)]
    assert [len(group) for group in maker.groups] == [1, MOST, 5]


def test_a_group_waits_for_the_threads_that_the_group_before_has_answered(
    maker: Maker, joined: JoinedCalls[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each group seems to take ten seconds, so the next one would wait as long.
    monkeypatch.setattr(flow_groups, "time", SimpleNamespace(monotonic=itertools.count(0, 10).__next__))
    monkeypatch.setattr(flow_groups, "LONGEST_WAIT", 20)
    callers = started(joined, maker, [1, 2])
    maker.may_go_on.set()
    assert callers[0].end() == 2
    again = Caller(joined, 3)
    assert [callers[1].end(), again.end()] == [4, 6]
    assert maker.groups == [[1], [2, 3]]


def test_a_group_does_not_wait_again_for_threads_that_have_not_come(
    maker: Maker, joined: JoinedCalls[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = started(joined, maker, [1, 2, 3])
    maker.may_go_on.set()
    assert [one.end() for one in callers] == [2, 4, 6]
    assert joined.call(4) == 8
    monkeypatch.setattr(flow_groups, "LONGEST_WAIT", 20)
    joined._took = 20
    assert joined.call(5) == 10
    assert maker.groups[-2:] == [[4], [5]]


def test_calls_of_many_threads_all_get_their_answers(joined: JoinedCalls[int, int], maker: Maker) -> None:
    maker.may_go_on.set()
    wrong: list[int] = []

    def many(base: int) -> None:
        wrong.extend(number for number in range(base, base + 200) if joined.call(number) != 2 * number)

    threads = [threading.Thread(target=many, args=(1000 * (n + 1),)) for n in range(8)]
    for thread in threads:
        thread.start()
    join_all(threads)
    assert not wrong
    assert sum(map(len, maker.groups)) == 1600
