"""Reads ``suite.toml`` into a :class:`~flashcore.model.suite.Suite`, or reports every mistake in it.

:mod:`flashcore.suites.parts` adds included files. :mod:`flashcore.suites.schema` declares the form.
:mod:`flashcore.suites.resolve` checks references between entries. All mistakes are raised at once as a
:class:`~flashcore.errors.ManifestError`.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import tomllib
from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path

from flashcore.errors import ManifestError, UsageError
from flashcore.model import cache, plugin
from flashcore.model.files import text_hash
from flashcore.model.suite import Shape, Suite, Variant
from flashcore.model.text import did_you_mean, matches_any
from flashcore.suites import lines, parts
from flashcore.suites.parts import MANIFEST as MANIFEST

#: The code that validates a manifest: this package and the model.
_READERS = sorted(p for folder in ("suites", "model") for p in (Path(__file__).parents[1] / folder).glob("*.*"))


def load(folder: Path | str, cache_folder: Path | None = None) -> Suite:
    """Reads and validates the manifest in ``folder``.

    Args:
        cache_folder: where to cache a valid manifest. Validation takes longer than a build that is up to date, so it is
            skipped until the manifest or the harness changes.

    Raises:
        UsageError: there is no such folder or no manifest in it.
        ManifestError: the manifest is wrong; lists every mistake.
    """
    root = Path(folder)
    path = root / MANIFEST
    if not path.is_file():
        raise UsageError(
            f"{path}: expected a suite's manifest, found no such file\n"
            f"  hint: name a folder with a {MANIFEST}, or create one with: flashcore init {root}"
        )
    text = path.read_bytes()
    if cache_folder is None:
        return _validated(path, text)[0]
    tables, languages = plugin.entries("tables"), plugin.entries("languages")
    readers = [*_READERS, *map(plugin.file_of, dict(tables).values())]
    key = f"{hashlib.sha256(text).hexdigest()} {root} {tables} {languages} {cache.stamp(readers)}"
    name = f"manifest-{text_hash(str(root))[:16]}"
    cached: tuple[Suite, tuple[str, ...], str] | None = cache.recall(cache_folder, name, key)
    if cached is not None:
        suite, manifests, digest = cached
        if digest == parts.digest(parts.included(root, manifests)[0]) and all(p.exists() for p in _files(suite)):
            return suite
    validated = _validated(path, text)
    cache.keep(cache_folder, name, key, validated)
    return validated[0]


def folders(suite: Suite) -> list[Path]:
    """The folders of a suite's files: its root, those that it includes, and its problems'."""
    root = Path(suite.root).resolve()
    problems = ((root / p.file).resolve().parent for p in suite.problems.values())
    return list(dict.fromkeys([root, *((root / i).resolve() for i in suite.include), *problems]))


def _files(suite: Suite) -> Iterator[Path]:
    """The files that a manifest names; they must exist even if the manifest is cached."""
    root = Path(suite.root)
    yield from (root / i for i in suite.include)
    yield from (root / p.file for p in suite.problems.values())
    yield from (root / v.kind.file for v in suite.variants.values())


def _validated(path: Path, text: bytes) -> tuple[Suite, tuple[str, ...], str]:
    """The suite, its ``manifests`` entries, and the digest of the included files."""
    from flashcore.suites.mistakes import Mistakes
    from flashcore.suites.resolve import resolve
    from flashcore.suites.schema import parse

    try:
        data = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # invalid TOML, not UTF-8, numbers of 5,000 digits
        raise ManifestError(str(path), [lines.invalid(MANIFEST, error)]) from error
    files, wrong = parts.included(path.parent, data.get("manifests"))
    combined = parts.CombinedManifest(data, {MANIFEST: text})
    combined.mistakes += starmap(combined.locate, wrong)
    for file, content in files.items():
        combined.add(file, content)
    manifest = parse(data)
    if isinstance(manifest, list):
        raise ManifestError(str(path), [*combined.mistakes, *starmap(combined.locate, manifest)])
    if combined.mistakes:
        raise ManifestError(str(path), combined.mistakes)
    mistakes = Mistakes(combined.locate)
    suite = resolve(manifest, path.parent, mistakes)
    if mistakes.lines:
        raise ManifestError(str(path), mistakes.lines)
    return dataclasses.replace(suite, manifests=tuple(files)), tuple(manifest.manifests), parts.digest(files)


class NothingMatches(UsageError):
    """No variant of this suite matches; another revision of the suite may have one."""


def select(suite: Suite, variants: Sequence[str] = (), shapes: Sequence[str] = ()) -> tuple[list[Variant], list[Shape]]:
    """The variants that match a glob, and the named shapes (default: all).

    Raises:
        NothingMatches: a glob matches no variant.
        UsageError: a shape does not exist.
    """
    for glob in variants or ("*",):
        if not fnmatch.filter(suite.variants, glob):
            names = ", ".join(suite.variants)
            raise NothingMatches(
                f"--variant {glob}: expected a glob matching one of {names}; found none"
                + did_you_mean(glob, suite.variants)
            )
    chosen = [v for v in suite.variants.values() if matches_any(v.name, variants or ("*",))]
    for name in shapes:
        if name not in suite.shapes:
            names = ", ".join(suite.shapes)
            raise UsageError(f"--shape {name}: expected one of {names}{did_you_mean(name, suite.shapes)}")
    return chosen, [s for s in suite.shapes.values() if not shapes or s.name in shapes]


def select_archs(suite: Suite, names: Sequence[str], *, given: str = "--arch ") -> tuple[str, ...]:
    """The suite's archs that are meant by names such as ``sm_90a``, ``90`` or ``9.0``; none by none.

    Raises:
        UsageError: the suite has no such arch.
    """
    archs = []
    for name in names:
        number = name.removeprefix("sm_").replace(".", "")
        meant = [a for a in suite.archs if a[3:] == number] or [a for a in suite.archs if a[3:].rstrip("af") == number]
        if not meant:
            raise UsageError(f"{given}{name}: expected one of the suite's archs ({', '.join(suite.archs)})")
        archs.append(meant[0])
    return tuple(dict.fromkeys(archs))


def narrowed(
    suite: Suite,
    variants: Sequence[str] = (),
    shapes: Sequence[str] = (),
    archs: Sequence[str] = (),
    *,
    compared: bool = False,
) -> Suite:
    """The suite with only what is selected, by default all.

    Args:
        compared: whether to keep what the variants are compared with.

    Raises:
        UsageError: see :func:`select` and :func:`select_archs`.
    """
    chosen, named = select(suite, variants, shapes)
    chosen += compared_with(suite, chosen) if compared else []
    return dataclasses.replace(
        suite,
        variants={name: v for name, v in suite.variants.items() if v in chosen},
        shapes={s.name: s for s in named},
        archs=select_archs(suite, archs) or suite.archs,
    )


def compared_with(suite: Suite, variants: Sequence[Variant]) -> list[Variant]:
    """The baseline, the variants' parents, and the libraries, without the variants."""
    names = {suite.baseline, *(v.parent for v in variants)}
    return [v for v in suite.variants.values() if (v.is_reference or v.name in names) and v not in variants]
