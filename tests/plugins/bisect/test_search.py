"""The search for the first slow commit: few timings, none for equal machine code, nothing invented where it cannot
decide."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from flashcore.plugins.bisect.search import Search, first_slow


class Written:
    """Commits whose machine code changes in each of ``edits``; those from ``slow`` on are slow."""

    def __init__(self, slow: int, edits: Collection[int], broken: Collection[int] = (), noisy: Collection[int] = ()):
        self.slow, self.edits, self.broken, self.noisy = slow, sorted(edits), broken, noisy
        self.begun: list[int] = []
        self.timed: list[int] = []

    def work(self, number: int) -> object | None:
        return None if number in self.broken else sum(edit <= number for edit in self.edits)

    def ahead(self, number: int) -> None:
        self.begun.append(number)

    def is_slower(self, number: int) -> bool | None:
        self.timed.append(number)
        return None if number in self.noisy else number >= self.slow


def searched(commits: Written, last: int = 32) -> Search:
    result = first_slow(commits, last, lambda _: None)
    assert result is not None and result.timed == commits.timed
    return result


@pytest.mark.parametrize("slow", range(1, 33))
def test_of_32_commits_at_most_6_are_timed(slow: int) -> None:
    commits = Written(slow, range(1, 33))
    result = searched(commits)
    assert (result.good, result.bad) == (slow - 1, slow) and len(commits.timed) <= 6
    assert set(commits.timed[1:]) <= set(commits.begun), "built ahead"


def test_commits_with_their_neighbours_machine_code_are_not_timed() -> None:
    commits = Written(20, edits=(5, 20, 28))
    result = searched(commits)
    assert (result.good, result.bad) == (19, 20)
    assert len(commits.timed) <= 3, "four versions of the code: two of them between good and bad"
    only = Written(20, edits=(20,))
    assert searched(only).bad == 20 and only.timed == [32], "the code changed once: it is that commit"


def test_what_is_not_slower_is_not_searched() -> None:
    commits = Written(slow=99, edits=range(1, 33))
    assert first_slow(commits, 32, lambda _: None) is None and commits.timed == [32]


def test_commits_that_do_not_build_or_decide_are_left_as_candidates() -> None:
    result = searched(Written(10, range(1, 33), broken=(9, 10), noisy=(11,)))
    assert (result.good, result.bad) == (8, 12) and result.untested == {9, 10, 11}
    assert searched(Written(3, range(1, 33), broken=(16, 17))).bad == 3
