"""Collects a manifest's mistakes, so that all are reported at once."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable

from flashcore.model.catalogue import FACTS, FactSpec
from flashcore.model.text import misspelled


class Mistakes:
    """Lines with a key, the expected and the actual value.

    Args:
        locate: formats a key with its place in the file, and a message if there is one.
    """

    def __init__(self, locate: Callable[..., str] = "{}: {}".format) -> None:
        self.locate = locate
        self._lines: dict[str, None] = {}  # without duplicates: the points of a sweep repeat a mistake

    @property
    def lines(self) -> list[str]:
        return list(self._lines)

    def add(self, key: str, expected: str, actual: str) -> None:
        self._lines[self.locate(key, f"expected {expected}, found {actual}")] = None

    def check_name(self, key: str, name: str, names: Collection[str], expected: str) -> None:
        """Requires ``name`` to be one of ``names``."""
        if name not in names:
            self.add(key, expected, misspelled(name, names))

    def check_globs(self, key: str, globs: Iterable[str], names: Collection[str], what: str) -> tuple[str, ...]:
        """The globs; requires each to match one of ``names``."""
        for glob in (globs := tuple(globs)):
            if not fnmatch.filter(names, glob):
                wider = f"*{glob.strip('*')}*"  # kernels have the names of their namespaces
                is_part = fnmatch.filter(names, wider)
                actual = f"{glob!r} (did you mean '{wider}'?)" if is_part else misspelled(glob, names)
                self.add(key, f"globs that match a {what}", actual)
        return globs

    def check_fact(self, key: str, name: str) -> FactSpec | None:
        """The fact's definition; requires it to be in the catalogue."""
        self.check_name(key, name, FACTS, "a fact (see: flashcore list --facts)")
        return FACTS.get(name)
