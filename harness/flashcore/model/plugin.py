"""The declaration of a plugin's entries, and the registry of loaded plugins.

A plugin is a package whose ``__init__`` exposes a :class:`Plugin` as ``PLUGIN``. Its entries are references,
``"module"`` or ``"module:attribute"``, which are imported on first use. :mod:`flashcore.pipeline.plugins` loads
plugins; this module imports none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flashcore.errors import UsageError

Kind = Literal[
    "commands",
    "help",
    "groups",
    "options",
    "pages",
    "sections",
    "facts",
    "causes",
    "tables",
    "verdicts",
    "api",
    "languages",
    "plans",
    "readers",
    "executors",
    "formats",
    "measurements",
]
Entries = Mapping[str, str]
_NONE: Entries = {}


class Plugin(NamedTuple):
    """A plugin's entries: a name and a reference for each.

    Args:
        name: the plugin's folder below ``plugins/``, or its entry point's name.
        commands: ``flashcore NAME`` → a module with ``add_arguments(parser)``, ``run(arguments) -> int``
            and optionally ``EXAMPLES``, pairs of a command line and its description, for its help.
        help: a command, or an executor's option ``--NAME`` → its help line, so that help imports neither.
        groups: a command → the group of :data:`flashcore.cli.main.GROUPS` that lists it, such as ``judge``.
        options: a command → a module with ``add_arguments(parser)`` and ``run(arguments) -> int | None``, which is
            called before the command; it replaces the command if it returns an exit code.
        pages: a page of the report → ``page(book) -> Page | None``. It replaces a core page of the same name.
        sections: a page of the report → ``section(book) -> Markup``, HTML appended to the page.
        facts: a fact's name → its :class:`~flashcore.model.catalogue.FactSpec`. Facts with an ncu metric are profiled.
        causes: a code → a class as in :mod:`flashcore.model.causes`, whose module adds its text to
            :data:`flashcore.model.cause_text.FORMS`.
        tables: a manifest table ``[NAME.…]`` → its form, a :class:`flashcore.suites.schema.TableForm`.
        verdicts: a manifest table ``[NAME.…]`` → ``verdicts(record, others)``: all verdicts on a record with it.
        api: an attribute of ``flashcore`` → the function or class.
        languages: a value of ``cubins`` in manifests → a :class:`flashcore.model.languages.Language`.
        plans: a value of ``plan`` in manifests → a module, a :class:`flashcore.measure.build.launch_plan.Recorder`.
        readers: a file's suffix → ``read(path) -> Report``, for ``flashcore import``.
        executors: ``--NAME ADDRESS`` → ``executor(address)``, a :class:`flashcore.measure.context.Executor`, which may
            also be a :class:`flashcore.pipeline.run.Elsewhere`.
        formats: ``flashcore gate --format NAME`` → ``render(judgement, record, places) -> str``.
        measurements: a name in :attr:`flashcore.measure.settings.Settings.measurements` → ``measure(context, cases)``,
            the facts of the cases that bench timed.
    """

    name: str
    commands: Entries = _NONE
    help: Entries = _NONE
    groups: Entries = _NONE
    options: Entries = _NONE
    pages: Entries = _NONE
    sections: Entries = _NONE
    facts: Entries = _NONE
    causes: Entries = _NONE
    tables: Entries = _NONE
    verdicts: Entries = _NONE
    api: Entries = _NONE
    languages: Entries = _NONE
    plans: Entries = _NONE
    readers: Entries = _NONE
    executors: Entries = _NONE
    formats: Entries = _NONE
    measurements: Entries = _NONE


#: The shipped plugin of each entry, so that a message can name it if its folder was removed. Options are as typed, or
#: as messages call them.
SHIPPED: Mapping[str, Entries] = {
    "commands": {
        "tune": "tune",
        "map": "map",
        "import": "reports",
        "capture": "reports",
        "diff": "compare",
        "init": "init",
        "audit": "audit",
        "runs": "runs",
        "trends": "trends",
        "bisect": "bisect",
        "watch": "watch",
        "phases": "phases",
        "mcp": "mcp",
        "judge": "judge",
    },
    "options": {
        **dict.fromkeys(("--against", "--processes", "--alpha", "--effect", "git revisions"), "against"),
        **dict.fromkeys(("--base", "--allow"), "base"),
        "--cluster": "cluster",
        "--host": "ssh",
        "--launcher": "launcher",
        "--energy": "energy",
    },
    "tables": {"space": "tune", "judge": "judge", "map": "map"},
    "languages": {name: name for name in ("triton", "gluon", "numba", "cute", "cutile")},
    "plans": {"recorded": "recorded"},
    "executors": {"cluster": "cluster", "host": "ssh"},
    "formats": dict.fromkeys(("junit", "sarif", "gitlab", "github"), "formats"),
    "pages": {"compare": "compare", "map": "map"},
    "api": {
        **dict.fromkeys(("import_report", "capture", "captured", "sweep"), "reports"),
        **dict.fromkeys(("compare", "ComparedRuns"), "compare"),
        **dict.fromkeys(("runs", "history"), "runs"),
    },
    "measurements": {"energy": "energy"},
    "facts": {
        name: plugin
        for plugin, names in {
            "energy": "power power_idle energy energy_low energy_high energy_above_idle energy_above_idle_low "
            "energy_above_idle_high flop_per_joule flop_per_joule_low flop_per_joule_high",
            "audit": "code_bytes constant_bytes occupancy_low occupancy_high native_kernels sass_tensor sass_tma "
            "sass_128",
            "reports": "traced_duration traced_launches",
            "map": "regret",
        }.items()
        for name in names.split()
    },
}

_loaded: dict[str, Plugin] = {}


def register(plugin: Plugin) -> None:
    """Adds a plugin's entries to those that :func:`entries` and :func:`find` return."""
    _loaded[plugin.name] = plugin


def entries(kind: Kind) -> list[tuple[str, str]]:
    """Every loaded plugin's entries of a kind, as name and reference."""
    return [entry for plugin in _loaded.values() for entry in getattr(plugin, kind).items()]


def entry(kind: Kind, name: str) -> str | None:
    """The reference that a loaded plugin adds under this name."""
    for plugin in reversed(_loaded.values()):
        references: Mapping[str, str] = getattr(plugin, kind)
        if name in references:
            return references[name]
    return None


def find(kind: Kind, name: str) -> Any:
    """The object that a loaded plugin adds under this name.

    Raises:
        UsageError: no loaded plugin adds it; the message names the shipped plugin that would.
    """
    reference = entry(kind, name)
    if reference is None:
        raise UsageError(f"{name}: expected a loaded plugin that provides it, found none{missing(kind, name)}")
    return resolve(reference)


def missing(kind: Kind, name: str) -> str:
    """A hint that names the shipped plugin of an entry; empty if it is loaded or there is none."""
    plugin = SHIPPED.get(kind, {}).get(name)
    return f" (provided by the plugin {plugin}, which is not installed)" if plugin and plugin not in _loaded else ""


def resolve(reference: str) -> Any:
    """Imports a reference, ``"module"`` or ``"module:attribute"``.

    Raises:
        UsageError: it needs a plugin that is not installed.
    """
    module, _, attribute = reference.partition(":")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise (absent(error) or error) from error
    return getattr(imported, attribute) if attribute else imported


def file_of(reference: str) -> Path:
    """The file of a reference's module, without importing it."""
    spec = importlib.util.find_spec(reference.partition(":")[0])
    return Path(spec.origin if spec and spec.origin else "")


def absent(error: ModuleNotFoundError) -> UsageError | None:
    """The error for users if the missing module is a shipped plugin; else ``None``."""
    name = str(error.name)
    if not name.startswith("flashcore.plugins."):
        return None
    plugin = name.removeprefix("flashcore.plugins.").removeprefix("languages.").partition(".")[0]
    return UsageError(f"expected the plugin {plugin}, which this needs, but it is not installed")
