"""Locates the source line of a verdict: a spill, a compiler's error, a kernel's definition.

Paths are relative to the repository, as annotations on code hosts require.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashcore.explain.verdict import Verdict
from flashcore.explain.verdict_note import LOCAL
from flashcore.model.causes import CompileFailed, Decided, SourceLine
from flashcore.model.record import Fact, Record, Subject
from flashcore.readers.kernel_names import identifier
from flashcore.suites import lines
from flashcore.suites.parts import MANIFEST

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line of a file. ``file`` has forward slashes; it is absolute if outside the repository."""

    file: str
    line: int


class Places:
    """Finds the source lines of verdicts. Each file is read once; a missing file gives no place.

    Args:
        root: the repository; places are relative to it.
    """

    def __init__(self, record: Record, root: Path) -> None:
        self.suite = record.suite
        self.folder = Path(record.suite.root)
        self.root = root.resolve()
        self._facts = record.facts
        self._errors = {(a.variant, a.arch): a.cause for a in record.artifacts}
        self._sites: dict[tuple[str | None, ...], SourceLine] = {}
        for fact in record.facts.named("local_memory_site"):
            if isinstance(fact.detail, SourceLine):
                for key in _site_keys(fact.subject):
                    self._sites.setdefault(key, fact.detail)
        self._kernels: dict[tuple[str, str | None], str] = {}
        for plan in record.plans:
            if plan.launches:
                self._kernels[plan.variant, plan.shape] = plan.launches[0].kernel
                self._kernels.setdefault((plan.variant, None), plan.launches[0].kernel)
        self._text = functools.cache(_text)
        self._definition = functools.cache(self._find_definition)
        self._declaration = functools.cache(self._find_declaration)

    def of(self, verdict: Verdict) -> SourcePlace | None:
        """The most specific line for this verdict; ``None`` if the sources are missing."""
        s = verdict.subject
        if verdict.budget == "builds":
            error = self._errors.get((s.variant, s.arch or ""))
            if isinstance(error, CompileFailed) and error.file:
                return self._place(self.folder / error.file, error.line)
        if verdict.fact in LOCAL:
            for site in filter(None, map(self._sites.get, _site_keys(s))):
                return self._place(self.folder / site.file, site.line)
        match self._facts.get(verdict.fact, s):
            case Fact(detail=Decided(file=file, line=line)) if file:
                return self._place(self.folder / file, line)
        kernel = s.kernel or self._kernels.get((s.variant, s.shape)) or self._kernels.get((s.variant, None))
        variant = self.suite.variants.get(s.variant)
        place = self._definition(variant.kind.file, kernel) if variant and variant.kind.file else None
        return place or self._declaration(s.variant)

    @functools.cached_property
    def manifest(self) -> SourcePlace:
        """The first line of the suite's manifest, or of an audit's ``flashcore.toml``: the place of other results."""
        names = (MANIFEST, *self.suite.manifests)
        name = next((name for name in names if (self.folder / name).is_file()), names[-1])
        return SourcePlace(os.path.relpath((self.folder / name).resolve(), self.root), 1)

    def _find_definition(self, source: str, kernel: str | None) -> SourcePlace | None:
        files = list(self._files(source))
        for path, text in files:
            if kernel and (line := _kernel_line(text, identifier(kernel))):
                return self._place(path, line)
        for path, text in files:  # a kernel defined by a macro, or of unknown name: the file's first kernel
            if "__global__" in text:
                return self._place(path, _line(text, text.index("__global__")))
        return self._place(files[0][0], 1) if files else None

    def _files(self, source: str) -> Iterator[tuple[Path, str]]:
        """The source and the suite's headers that it includes, breadth first."""
        pending = [self.folder / source]
        roots = [self.folder / i for i in self.suite.include]
        for path in pending:  # grows during iteration
            text = self._text(path)
            if text is None:
                continue
            yield path, text
            for name in _INCLUDE.findall(text):
                header = next((r / name for r in (path.parent, *roots) if (r / name).is_file()), None)
                if header and header not in pending:
                    pending.append(header)

    def _find_declaration(self, variant: str) -> SourcePlace | None:
        """The line of the manifest, or an included file, that declares a variant or its sweep."""
        path, _, line = lines.declaration(self.folder, (MANIFEST, *self.suite.manifests), variant)
        return self._place(path, line) if path.is_file() else None

    def _place(self, path: Path, line: int) -> SourcePlace:
        absolute = path.resolve()
        inside = absolute.is_relative_to(self.root)
        return SourcePlace((absolute.relative_to(self.root) if inside else absolute).as_posix(), line)


def _site_keys(subject: Subject) -> list[tuple[str | None, ...]]:
    """Keys of a local-memory site, most specific first."""
    variant, kernel = subject.variant, subject.kernel
    return [(variant, subject.arch, kernel), (variant, None, kernel), (variant, None, None)]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _kernel_line(text: str, name: str) -> int | None:
    """The line that defines or declares ``name`` as a kernel, in CUDA or Python."""
    if match := re.search(rf"^[ \t]*def {re.escape(name)}\(", text, re.MULTILINE):
        return _line(text, match.start())
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        before = text[: match.start()]
        head = before[max(before.rfind(c) for c in ";}{#") + 1 :]
        if "__global__" in head:
            return _line(text, match.start())
    return None
