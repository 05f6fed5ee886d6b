"""Loads the plugins: built-in ones from the folder ``plugins/``, third-party ones by name.

Removing a folder below ``plugins/`` removes the plugin. An installed third-party plugin, an entry point of the group
``flashcore.plugins``, is loaded only if the environment variable ``FLASHCORE_PLUGINS`` (comma-separated names) lists
it.
"""

from __future__ import annotations

import functools
import importlib
import os
from pathlib import Path
from typing import Any

from flashcore.errors import UsageError
from flashcore.model import plugin
from flashcore.model.plugin import Kind, Plugin

FOLDER = Path(__file__).parents[1] / "plugins"
GROUP, VARIABLE = "flashcore.plugins", "FLASHCORE_PLUGINS"


@functools.cache
def load() -> None:
    """Registers every plugin, once per process.

    Raises:
        UsageError: a name in ``FLASHCORE_PLUGINS`` is not an installed plugin.
    """
    for file in sorted([*FOLDER.glob("*/__init__.py"), *FOLDER.glob("languages/*/__init__.py")]):
        package = ".".join(file.parent.relative_to(FOLDER).parts)
        declared = getattr(importlib.import_module(f"flashcore.plugins.{package}"), "PLUGIN", None)
        if declared is not None:  # `languages` itself is not a plugin
            plugin.register(declared)
    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        plugin.register(_third_party(name))


def entries(kind: Kind) -> list[tuple[str, str]]:
    """The entries of a kind from all plugins, as (name, reference)."""
    load()
    return plugin.entries(kind)


def objects(kind: Kind) -> list[tuple[str, Any]]:
    """The entries of a kind from all plugins, as (name, imported object)."""
    return [(name, plugin.resolve(reference)) for name, reference in entries(kind)]


def find(kind: Kind, name: str) -> Any:
    """The object that a plugin adds under this name; see :func:`flashcore.model.plugin.find`."""
    load()
    return plugin.find(kind, name)


def _third_party(name: str) -> Plugin:
    from importlib.metadata import entry_points  # slow: as long as the rest of `--help`

    entry_point = next(iter(entry_points(group=GROUP, name=name)), None)
    declared = entry_point.load() if entry_point else None
    if not isinstance(declared, Plugin):
        raise UsageError(f"{VARIABLE}: expected installed plugins, found {name!r}")
    return declared
