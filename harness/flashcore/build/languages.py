"""The kernel languages of a suite's variants; plugins provide them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flashcore.build import build
from flashcore.build.launch_plan import Recorder
from flashcore.model import plugin
from flashcore.model.groups import grouped
from flashcore.model.languages import Language
from flashcore.model.suite import CompiledCallable, ForeignLauncher, Suite, Variant


def language(variant: Variant) -> Language | None:
    """The language of a variant's kernels; ``None`` for a CUDA file or a Python callable.

    Raises:
        UsageError: no loaded plugin provides it.
    """
    kind = variant.kind
    module: Language | None = plugin.find("languages", kind.language) if isinstance(kind, CompiledCallable) else None
    return module


def by_language(variants: Iterable[Variant]) -> list[tuple[Language, list[Variant]]]:
    """Each language with its variants."""
    compiled = grouped((v.kind.language, v) for v in variants if isinstance(v.kind, CompiledCallable))
    return [(plugin.find("languages", name), of) for name, of in compiled.items()]


def recorder(suite: Suite) -> Recorder | None:
    """The recorder of launch plans, if the suite has foreign launchers, which need it; else ``None``.

    Raises:
        UsageError: no loaded plugin provides it.
    """
    foreign = any(isinstance(v.kind, ForeignLauncher) for v in suite.variants.values())
    module: Recorder | None = plugin.find("plans", "recorded") if foreign else None
    return module


def in_use(suite: Suite, folder: Path) -> set[Path]:
    """The build folders of the suite's current variants.

    Raises:
        CapabilityError: a compiler whose version is part of a folder's name is not installed.
    """
    folders = build.in_use(suite, folder)
    languages = by_language(suite.variants.values())
    return folders.union(*(module.in_use(suite, folder, variants) for module, variants in languages))
