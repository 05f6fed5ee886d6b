"""Answers of tools in pages of limited size."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from flashcore.model.text import visible

#: Characters of a text, bytes for ``next`` and ``left``, and the number of answers whose pages are kept.
_TEXT, _REST, _KEPT = 500, 60, 16


class Answers:
    """The most recent answers with pages that were not requested yet.

    Args:
        most: bytes of JSON in a page.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers = itertools.count(1)
        self._rows: dict[str, list[tuple[str, Any]]] = {}

    def first(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The first page: every value but the lists, and as many items of the lists as fit."""
        plain, name = _plain(answer), str(next(self._numbers))
        lists = {key: value for key, value in plain.items() if isinstance(value, list)}
        self._rows[name] = [(key, item) for key, items in lists.items() for item in items]
        self._rows.pop(str(int(name) - _KEPT), None)
        return self._page(plain | {key: [] for key in lists}, name, 0)

    def rest(self, cursor: str) -> dict[str, Any] | None:
        """The page that ``cursor`` names; ``None`` if there is none, or it is no longer kept."""
        name, _, start = cursor.partition(":")
        return self._page({}, name, int(start)) if name in self._rows and start.isdecimal() else None

    def _page(self, page: dict[str, Any], name: str, start: int) -> dict[str, Any]:
        rows = self._rows[name]
        for at, (key, item) in enumerate(rows[start:], start):
            if _size({key: item}) > self._most - _REST:
                item = f"omitted: an item of {_size(item)} bytes"
            longer = page | {key: [*page.get(key, ()), item]}
            if _size(longer) > self._most - _REST:
                return page | {"next": f"{name}:{at}", "left": len(rows) - at}
            page = longer
        return page


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _plain(value: Any) -> Any:
    """JSON data whose texts are short and without control characters: they may come from a kernel's author."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        plain = visible(value)
        return plain if len(plain) <= _TEXT else f"{plain[:_TEXT]}…"
    return value
