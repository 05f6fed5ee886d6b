"""The mistakes of a manifest that span several entries, collected to be reported at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase

from flashcore.model.catalogue import FACTS, FactSpec
from flashcore.model.suggest import misspelt


class Mistakes:
    """Lines of key, what was expected, and what was found.

    Args:
        locate: makes a line of a key and a message, or of a key.
    """

    def __init__(self, locate: Callable[..., str] = "{}: {}".format) -> None:
        self.locate = locate
        self._lines: dict[str, None] = {}  # points of a sweep share theirs

    @property
    def lines(self) -> list[str]:
        return list(self._lines)

    def add(self, key: str, expected: str, actual: str) -> None:
        self._lines[self.locate(key, f"expected {expected}, found {actual}")] = None

    def check_name(self, key: str, name: str, names: Collection[str], expected: str) -> None:
        """``name`` must be one of ``names``."""
        if name not in names:
            self.add(key, expected, misspelt(name, names))

    def check_globs(self, key: str, globs: Iterable[str], names: Collection[str], what: str) -> tuple[str, ...]:
        """The globs, each of which must match one of ``names``."""
        for glob in (globs := tuple(globs)):
            if not any(fnmatchcase(name, glob) for name in names):
                self.add(key, f"globs that match a {what}", misspelt(glob, names))
        return globs

    def check_fact(self, key: str, name: str) -> FactSpec | None:
        """The fact of that name, which must be in the catalogue."""
        self.check_name(key, name, FACTS, "a fact (see: flashcore list --facts)")
        return FACTS.get(name)
