"""The declaration of what a feature or an extension adds, and the registry of those that are loaded.

A plugin is a package, a feature or an installed extension, whose ``__init__`` exposes a :class:`Plugin` as ``PLUGIN``.
Its entries are references, ``"module"`` or ``"module:attribute"``, which are imported on first use.
:mod:`flashcore.pipeline.plugins` loads plugins; this module imports none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flashcore.errors import UsageError

EntryKind = Literal[
    "commands",
    "help",
    "options",
    "pages",
    "facts",
    "causes",
    "tables",
    "verdicts",
    "api",
    "languages",
    "plans",
    "executors",
    "formats",
    "measurements",
]
Entries = Mapping[str, str]
_NONE: Entries = {}
#: What to do about a command, an option or a table that is unknown here.
WHERE = "extensions add more: docs/reference/extensions.md"


class Plugin(NamedTuple):
    """A plugin's entries: a name and a reference for each.

    Args:
        name: the feature's folder below ``features/``, or the extension's entry point's name.
        commands: ``flashcore NAME`` → a module with ``add_arguments(parser)``, ``run(arguments) -> int``
            and optionally ``EXAMPLES``, pairs of a command line and its description, for its help.
        help: a command, or an executor's option ``--NAME`` → its help line, so that help imports neither.
        options: a command → a module with ``add_arguments(parser)`` and ``run(arguments) -> int | None``, which is
            called before the command; it replaces the command if it returns an exit code.
        pages: a page of the report, or a part of one → ``page(book) -> Page | None``. It replaces a core page of the
            same name.
        facts: a fact's name → its :class:`~flashcore.model.catalogue.FactSpec`. Facts with an ncu metric are profiled.
        causes: a code → a class or a template as in :mod:`flashcore.model.causes`.
        tables: a manifest table ``[NAME.…]`` → its form, a :class:`flashcore.suites.schema.TableForm`.
        verdicts: a manifest table ``[NAME.…]`` → ``verdicts(record, others)``: all verdicts on a record with it.
        api: an attribute of ``flashcore`` → the function or class.
        languages: a value of ``cubins`` in manifests → a :class:`flashcore.model.languages.Language`.
        plans: a value of ``plan`` in manifests → a module, a :class:`flashcore.build.launch_plan.Recorder`.
        executors: ``--NAME ADDRESS`` → ``executor(address)``, a :class:`flashcore.runner.executor.Executor`, which may
            also be a :class:`flashcore.pipeline.run.Elsewhere`.
        formats: ``flashcore gate --format NAME`` → ``render(judgement, record, places) -> str``.
        measurements: a name in :attr:`flashcore.model.settings.Settings.measurements` → ``measure(context, cases)``,
            the facts of the cases that bench timed.
    """

    name: str
    commands: Entries = _NONE
    help: Entries = _NONE
    options: Entries = _NONE
    pages: Entries = _NONE
    facts: Entries = _NONE
    causes: Entries = _NONE
    tables: Entries = _NONE
    verdicts: Entries = _NONE
    api: Entries = _NONE
    languages: Entries = _NONE
    plans: Entries = _NONE
    executors: Entries = _NONE
    formats: Entries = _NONE
    measurements: Entries = _NONE


_loaded: dict[str, Plugin] = {}


def register(plugin: Plugin) -> None:
    """Adds a plugin's entries to those that :func:`entries` and :func:`find` return."""
    _loaded[plugin.name] = plugin


def entries(kind: EntryKind) -> list[tuple[str, str]]:
    """Every loaded plugin's entries of a kind, as name and reference."""
    return [entry for plugin in _loaded.values() for entry in getattr(plugin, kind).items()]


def entry(kind: EntryKind, name: str) -> str | None:
    """The reference that a loaded plugin adds under this name."""
    for plugin in reversed(_loaded.values()):
        references: Mapping[str, str] = getattr(plugin, kind)
        if name in references:
            return references[name]
    return None


def find(kind: EntryKind, name: str) -> Any:
    """The object that a loaded plugin adds under this name.

    Raises:
        UsageError: no loaded plugin adds it.
    """
    reference = entry(kind, name)
    if reference is None:
        raise UsageError(f"{name}: expected a feature or an extension that provides it, found none")
    return resolve(reference)


def resolve(reference: str) -> Any:
    """Imports a reference, ``"module"`` or ``"module:attribute"``."""
    module, _, attribute = reference.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, attribute) if attribute else imported


def file_of(reference: str) -> Path:
    """The file of a reference's module, without importing it."""
    spec = importlib.util.find_spec(reference.partition(":")[0])
    return Path(spec.origin if spec and spec.origin else "")
