"""Loads the features, which are the folders in ``features/``, and the installed extensions.

An extension is an entry point of the group ``flashcore.plugins``. Every installed one is loaded; where the environment
variable ``FLASHCORE_EXTENSIONS`` is set, only those that it names (comma-separated; empty: none).
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashcore.errors import CapabilityError, UsageError
from flashcore.model import plugin
from flashcore.model.catalogue import FACTS
from flashcore.model.plugin import EntryKind, Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FOLDER = Path(__file__).parents[1] / "features"
GROUP, VARIABLE = "flashcore.plugins", "FLASHCORE_EXTENSIONS"
#: The kinds of entries whose names an extension shares with nobody.
_OWN: tuple[EntryKind, ...] = (
    "commands",
    "facts",
    "causes",
    "tables",
    "verdicts",
    "api",
    "languages",
    "plans",
    "formats",
)


@functools.cache
def load() -> None:
    """Registers every feature and extension, once per process.

    Raises:
        UsageError: ``FLASHCORE_EXTENSIONS`` names an extension that is not installed.
        CapabilityError: an extension cannot be imported, or has an entry of a name that is taken.
    """
    for file in sorted([*FOLDER.glob("*/__init__.py"), *FOLDER.glob("languages/*/__init__.py")]):
        package = ".".join(file.parent.relative_to(FOLDER).parts)
        declared = getattr(importlib.import_module(f"flashcore.features.{package}"), "PLUGIN", None)
        if declared is not None:  # `languages` itself is none
            plugin.register(declared)
    for entry_point in extensions():
        plugin.register(_loaded(entry_point))


def extensions() -> Iterator[EntryPoint]:
    """The entry points of the extensions to load.

    Raises:
        UsageError: ``FLASHCORE_EXTENSIONS`` names an extension that is not installed.
    """
    if (chosen := os.environ.get(VARIABLE)) == "":
        return
    from importlib.metadata import entry_points  # slow: as long as the rest of `--help`

    installed = {e.name: e for e in entry_points(group=GROUP)}
    for name in sorted(installed) if chosen is None else chosen.split(","):
        if name not in installed:
            found = ", ".join(sorted(installed)) or "none"
            raise UsageError(f"{VARIABLE}: expected names of installed extensions ({found}), found {name!r}")
        yield installed[name]


def entries(kind: EntryKind) -> list[tuple[str, str]]:
    """The entries of a kind from all plugins, as (name, reference)."""
    load()
    return plugin.entries(kind)


def pages() -> list[tuple[str, Any]]:
    """The pages of all plugins, as (name, what makes it)."""
    return [(name, plugin.resolve(reference)) for name, reference in entries("pages")]


def find(kind: EntryKind, name: str) -> Any:
    """The object that a plugin adds under this name; see :func:`flashcore.model.plugin.find`."""
    load()
    return plugin.find(kind, name)


def _loaded(entry_point: EntryPoint) -> Plugin:
    dist = entry_point.dist
    whose = f"extension {entry_point.name}" + (f" ({dist.name} {dist.version})" if dist else "")

    def broken(expected: str, found: str) -> CapabilityError:
        hint = f"uninstall it, or install another version of it; {VARIABLE}= loads none"
        return CapabilityError(f"{whose}: expected {expected}, found {found}", hint)

    try:
        declared = entry_point.load()
    except Exception as error:
        raise broken("a package that can be imported", f"{type(error).__name__}: {error}") from error
    if not isinstance(declared, Plugin):
        raise broken(f"a Plugin at {entry_point.value}", type(declared).__name__)
    for kind in _OWN:
        taken = {name for name, _ in plugin.entries(kind)} | _core(kind)
        if mine := sorted(taken & {*getattr(declared, kind)}):
            raise broken(f"{kind} of its own", f"{mine[0]}, which is taken")
    return declared


def _core(kind: EntryKind) -> set[str]:
    """The core's names of a kind; the command line knows its commands."""
    if kind == "facts":
        return {*FACTS}
    if kind in ("tables", "verdicts"):
        from flashcore.suites.schema import Manifest  # slow: pydantic

        return {*Manifest.model_fields}
    return set()
