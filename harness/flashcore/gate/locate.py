"""Where in the sources a verdict points: the line of a spill, a compiler's error, a kernel's definition.

Paths are relative to the repository that the suite lies in, as code hosts need them in annotations.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashcore.explain.explain import LOCAL
from flashcore.gate.judge import Verdict
from flashcore.model.causes import CompileFailed, SourceLine
from flashcore.model.record import Record, Subject
from flashcore.readers.kernel_names import identifier
from flashcore.suites.load import MANIFEST

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
_VARIANT = re.compile(r"""^[ \t]*\[variant\.(?P<quote>["']?)(?P<name>.+?)(?P=quote)\]""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file. ``file`` uses forward slashes; it is absolute outside of the repository."""

    file: str
    line: int


class Places:
    """Finds the place of a verdict. Every file is read once; one that is missing gives no place.

    Args:
        root: the repository, which paths are relative to.
    """

    def __init__(self, record: Record, root: Path) -> None:
        self.suite = record.suite
        self.folder = Path(record.suite.root)
        self.root = root.resolve()
        self._errors = {(a.variant, a.arch): a.cause for a in record.artifacts}
        self._defined: dict[tuple[str, str | None], Place | None] = {}
        self._declared: dict[str, Place | None] = {}
        self._sites: dict[tuple[str, str | None, str | None], SourceLine] = {}
        for fact in record.facts.named("local_memory_site"):
            if isinstance(fact.detail, SourceLine) and (s := fact.subject):
                for key in ((s.variant, s.arch, s.kernel), (s.variant, None, s.kernel), (s.variant, None, None)):
                    self._sites.setdefault(key, fact.detail)
        self._kernels: dict[tuple[str, str | None], str] = {
            (p.variant, p.shape): p.launches[0].kernel for p in record.plans if p.launches
        }
        for plan in record.plans:
            if plan.launches:
                self._kernels.setdefault((plan.variant, None), plan.launches[0].kernel)

    def of(self, verdict: Verdict) -> Place | None:
        """The most telling line for this verdict; ``None`` if the sources are not here."""
        subject = verdict.subject
        if verdict.budget == "builds" and (place := self._error(subject)):
            return place
        if verdict.fact in LOCAL and (place := self._site(subject)):
            return place
        if place := self._definition(subject):
            return place
        if subject.variant not in self._declared:
            self._declared[subject.variant] = self._declaration(subject.variant)
        return self._declared[subject.variant]

    def _error(self, subject: Subject) -> Place | None:
        cause = self._errors.get((subject.variant, subject.arch or ""))
        return (
            self._place(self.folder / cause.file, cause.line)
            if isinstance(cause, CompileFailed) and cause.file
            else None
        )

    def _site(self, subject: Subject) -> Place | None:
        for key in (
            (subject.variant, subject.arch, subject.kernel),
            (subject.variant, None, subject.kernel),
            (subject.variant, None, None),
        ):
            if site := self._sites.get(key):
                return self._place(self.folder / site.file, site.line)
        return None

    def _definition(self, subject: Subject) -> Place | None:
        variant = self.suite.variants.get(subject.variant)
        if variant is None or not variant.kind.file:
            return None
        kernel = subject.kernel or self._kernels.get((subject.variant, subject.shape))
        kernel = kernel or self._kernels.get((subject.variant, None))
        key = (variant.kind.file, kernel)
        if key not in self._defined:
            self._defined[key] = self._find(variant.kind.file, kernel)
        return self._defined[key]

    def _find(self, source: str, kernel: str | None) -> Place | None:
        files = list(self._files(source))
        for path, text in files:
            if kernel and (line := _kernel_line(text, identifier(kernel))):
                return self._place(path, line)
        for path, text in files:  # made by a macro, or not known by name: the first kernel in the file
            if "__global__" in text:
                return self._place(path, text[: text.index("__global__")].count("\n") + 1)
        return self._place(files[0][0], 1) if files else None

    def _files(self, source: str) -> Iterator[tuple[Path, str]]:
        """The source, then the headers of the suite that it includes, outermost first."""
        pending = [self.folder / source]
        seen: set[Path] = set()
        roots = [self.folder / i for i in self.suite.include]
        while pending:
            path = pending.pop(0)
            if path in seen:
                continue
            seen.add(path)
            text = _text(path)
            if text is None:
                continue
            yield path, text
            for name in _INCLUDE.findall(text):
                pending += [r / name for r in (path.parent, *roots) if (r / name).is_file()][:1]

    def _declaration(self, variant: str) -> Place | None:
        """The line of the manifest, or of a file that it includes, which declares a variant or the sweep it is of."""
        manifests = [self.folder / file for file in (MANIFEST, *self.suite.manifests)]
        for path in manifests:
            text = _text(path) or ""
            for match in _VARIANT.finditer(text):
                parts = re.split(r"\{[^}]*\}", match["name"])
                if re.fullmatch(".+".join(map(re.escape, parts)), variant):
                    return self._place(path, text[: match.start()].count("\n") + 1)
        return self._place(manifests[0], 1) if manifests[0].is_file() else None

    def _place(self, path: Path, line: int) -> Place:
        absolute = path.resolve()
        if absolute.is_relative_to(self.root):
            return Place(absolute.relative_to(self.root).as_posix(), line)
        return Place(absolute.as_posix(), line)


@functools.lru_cache(maxsize=512)
def _read(path: str, stamp: int) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _text(path: Path) -> str | None:
    try:
        return _read(os.fspath(path), path.stat().st_mtime_ns)
    except OSError:
        return None


def _kernel_line(text: str, name: str) -> int | None:
    """The line on which ``name`` is defined or declared as a kernel, in CUDA or in Python."""
    if match := re.search(rf"^[ \t]*def {re.escape(name)}\(", text, re.MULTILINE):
        return text.count("\n", 0, match.start()) + 1
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        before = text[: match.start()]
        head = before[max(before.rfind(c) for c in ";}{#") + 1 :]
        if "__global__" in head:
            return before.count("\n") + 1
    return None
