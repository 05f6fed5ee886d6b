"""Modules that are imported when a test first uses them: each worker of a run collects every file, and torch, pandas
and the SDK of MCP take most of a second each.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest


class Late:
    """What ``load`` returns, when an attribute of it is first asked for."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = functools.cache(load)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_mock")):  # pytest asks each name of a file whether it is a test
            raise AttributeError(name)
        return getattr(self._load(), name)


def optional(package: str) -> Any:
    """A package's module. Where it is missing, the test that uses it is skipped."""
    return Late(lambda: pytest.importorskip(package))


def needs(package: str) -> pytest.MarkDecorator:
    """Skips the tests of a file without a package."""
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"package: {package}")
