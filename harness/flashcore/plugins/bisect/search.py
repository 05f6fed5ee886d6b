"""Searches a list of commits for the first slow one. Pure: it asks its caller to build and to time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Commits(Protocol):
    """Commits by position, oldest first. Number 0 is good and the last one is bad."""

    def work(self, number: int) -> object | None:
        """What the GPU gets to do in a commit; equal work is not timed twice. ``None``: the case is not built there."""

    def ahead(self, number: int) -> None:
        """Starts to build a commit that may be asked for next."""

    def is_slower(self, number: int) -> bool | None:
        """Times a commit against number 0; ``None``: undecided."""


@dataclass(slots=True)
class Search:
    """The outcome.

    Args:
        good, bad: the last commit that is not slower, and the first one that is. Between them are only commits that
            could not be built or decided.
        timed: the timed commits, in order.
    """

    good: int
    bad: int
    timed: list[int] = field(default_factory=list)
    untested: set[int] = field(default_factory=set)


def first_slow(commits: Commits, last: int, say: Callable[[str], None]) -> Search | None:
    """The first slow one of ``last`` + 1 commits; ``None`` if the last one is not slower than number 0."""
    search = Search(0, last, [last])
    commits.ahead(last // 2)
    if not commits.is_slower(last):
        return None
    while middle := _middle(search):
        work = commits.work(middle)
        if work is None:
            search.untested.add(middle)
        elif work == commits.work(search.good):
            search.good = middle
        elif work == commits.work(search.bad):
            search.bad = middle
        else:
            for good, bad in ((search.good, middle), (middle, search.bad)):
                if following := _middle(Search(good, bad, untested=search.untested)):
                    commits.ahead(following)
            search.timed.append(middle)
            match commits.is_slower(middle):
                case True:
                    search.bad = middle
                case False:
                    search.good = middle
                case None:
                    search.untested.add(middle)
        say(f"{search.bad - search.good - 1} commits left")
    return search


def _middle(search: Search) -> int:
    """The commit nearest to the middle that may still be tested; 0 if there is none."""
    rest = [n for n in range(search.good + 1, search.bad) if n not in search.untested]
    middle = (search.good + search.bad) / 2
    return min(rest, key=lambda n: abs(n - middle), default=0)
