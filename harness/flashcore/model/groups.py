"""Groups values, and picks attributes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Groups the values by key; keys and values keep their order."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def picked(thing: object, *names: str) -> dict[str, Any]:
    """The named attributes of ``thing``."""
    return {name: getattr(thing, name) for name in names}


def with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same with tuples in place of lists, as fields of frozen classes are."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
