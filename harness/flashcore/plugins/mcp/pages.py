"""Answers of tools in pages of limited size."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from flashcore.model.text import visible

#: Characters of a text, digits of a cursor, bytes for ``next`` and ``left``, and how many answers' pages are kept.
_TEXT, _DIGITS, _REST, _KEPT = 500, 9, 60, 16


class Answers:
    """The most recent answers with pages that were not requested yet.

    Args:
        most: bytes of JSON in a page.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers = itertools.count(1)
        self._parts: dict[str, list[tuple[str, Any]]] = {}

    def first(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The first page: all numbers and texts, and as many entries of objects, then items of lists, as fit."""
        plain, name = _plain(answer), str(next(self._numbers))
        nested = {key: value for key, value in plain.items() if isinstance(value, list | dict)}
        of_objects = [
            (key, {k: v}) for key, value in nested.items() if isinstance(value, dict) for k, v in value.items()
        ]
        of_lists = [(key, [item]) for key, value in nested.items() if isinstance(value, list) for item in value]
        self._parts[name] = [*of_objects, *of_lists]
        self._parts.pop(str(int(name) - _KEPT), None)
        return self._page(plain | {key: type(value)() for key, value in nested.items()}, name, 0)

    def rest(self, cursor: str) -> dict[str, Any] | None:
        """The page that ``cursor`` names; ``None`` if there is none, or it is no longer kept."""
        name, _, start = cursor.partition(":")
        is_cursor = name in self._parts and start.isdecimal() and len(start) <= _DIGITS
        return self._page({}, name, int(start)) if is_cursor else None

    def _page(self, page: dict[str, Any], name: str, start: int) -> dict[str, Any]:
        parts = self._parts[name]
        for at, (key, part) in enumerate(parts[start:], start):
            if _size({key: part}) > self._most - _REST:
                part = _omitted(part)
            before = page.get(key, type(part)())
            longer = page | {key: before | part if isinstance(part, dict) else before + part}
            if _size(longer) > self._most - _REST:
                return page | {"next": f"{name}:{at}", "left": len(parts) - at}
            page = longer
        return page


def _omitted(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: f"omitted: a value of {_size(value)} bytes" for key, value in part.items()}
    return [f"omitted: an item of {_size(item)} bytes" for item in part]


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _plain(value: Any) -> Any:
    """JSON data whose texts are short and without control characters: they may come from a kernel's author."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        plain = visible(value)
        return plain if len(plain) <= _TEXT else f"{plain[:_TEXT]}…"
    return value
