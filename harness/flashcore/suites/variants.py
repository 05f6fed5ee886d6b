"""Converts a manifest's variants: expands templates over the points of their sweeps."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flashcore.chips import devices
from flashcore.chips.occupancy import LIMITS, limits
from flashcore.model import plugin
from flashcore.model.suite import (
    Cuda,
    Prediction,
    Problem,
    PythonCallable,
    Shape,
    Variant,
    VariantKind,
    Where,
    kind_of,
)
from flashcore.suites.mistakes import Mistakes
from flashcore.suites.problems import problem_name
from flashcore.suites.schema import MOST_LETTERS, Manifest, PredictionForm, VariantForm

NAME = re.compile(r"[a-z][a-z0-9_]*")
MOST_POINTS, MOST_ANCESTORS = 10_000, 100
#: nvcc's flags by whose place or meaning other keys and the harness decide.
_RESERVED = re.compile(
    r"-[IL].*|-l(?!ineinfo).*|--?(isystem|include|c|o|E|M\w*|G|arch|gencode|code|rdc|dc|dlto|cubin|ptx|fatbin|optf|ccbin"
    r"|compile|device-\w+|gpu-\w+|generate-code|relocatable-device-code|options-file|library|output-file"
    r"|compiler-bindir)(=.*)?|[^-].*\.(cu|o|a|so)|@.*"
)
#: Resources with a roof that the roofs suite measures; datasheets add others.
_ROOFS = ("dram", "l2", "l1", "shared", "exp", "issue", "barrier", "cluster_barrier", "launch")

_Point = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class _Template:
    """A variant's table and one point of its sweep."""

    name: str
    form: VariantForm
    point: _Point
    mistakes: Mistakes

    @property
    def key(self) -> str:
        return f"variant.{self.name}"

    def fill(self, text: str) -> str:
        try:
            return text.format_map(self.point)
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            axes = ", ".join(self.point) or "none"
            self.mistakes.add(self.key, f"only sweep axes ({axes}) in braces", f"{text!r} ({error})")
            return text


class Variants:
    """Converts a manifest's variants, and collects the mistakes in them."""

    def __init__(self, manifest: Manifest, root: Path, problems: Mapping[str, Problem], mistakes: Mistakes) -> None:
        self._manifest, self._root, self._problems, self._mistakes = manifest, root, problems, mistakes
        self._languages = dict(plugin.entries("languages"))
        self._roofs = sorted({*_ROOFS, *(rate for d in devices.load().values() for rate in d.rates)})
        self._tolerances = {name: _tolerances(root / p.file) for name, p in manifest.problem.items()}

    def make(self, shapes: Mapping[str, Shape]) -> dict[str, Variant]:
        """All variants by name, in the manifest's order."""
        self._check_flags("", self._manifest.flags)
        variants: dict[str, Variant] = {}
        keys: dict[str, str] = {}  # variant → the key that declares it
        for template in self._templates():
            if (variant := self._variant(template)) is None:
                continue
            if (first := keys.get(variant.name)) is not None:
                other = "" if first == template.key else f", first by {self._mistakes.locate(first)}"
                self._mistakes.add(template.key, "a unique name", f"{variant.name!r} twice{other}")
            variants[variant.name], keys[variant.name] = variant, template.key
        for name, variant in variants.items():
            if variant.parent is not None:
                self._mistakes.check_name(f"{keys[name]}.parent", variant.parent, variants, "a variant")
            self._check_ancestry(keys[name], name, variants)
            self._mistakes.check_globs(f"{keys[name]}.where.shapes", variant.where.shapes, shapes, "shape")
        return variants

    def _templates(self) -> Iterator[_Template]:
        """One template per point of each sweep."""
        total = 0
        for name, form in self._manifest.variant.items():
            points: Iterable[_Point]
            if isinstance(sweep := form.sweep, dict):
                size = math.prod(map(len, sweep.values()))
                points = (dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values()))
            else:
                points = sweep or [{}]
                size = len(points)
            total += size
            if total > MOST_POINTS:
                self._mistakes.add(f"variant.{name}", f"at most {MOST_POINTS:,} variants in total", f"{size:,} more")
                continue
            for point in points:
                yield _Template(name, form, point, self._mistakes)

    def _variant(self, template: _Template) -> Variant | None:
        key, form, mistakes, fill = template.key, template.form, self._mistakes, template.fill
        name = fill(template.name)
        if not NAME.fullmatch(name) or len(name) > MOST_LETTERS:
            expected = f"a name of at most {MOST_LETTERS} characters matching {NAME.pattern}"
            mistakes.add(key, expected, repr(name[:200]))
            return None
        if (kind := self._kind(key, form)) is None:
            return None
        if form.document and form.document not in self._manifest.documents:
            names = ", ".join(self._manifest.documents) or "none"
            mistakes.add(f"{key}.document", f"one of documents ({names})", repr(form.document))
        config = {k: _number(fill(v)) if isinstance(v, str) else v for k, v in form.config.items()}
        for text in (kind.file, *config.values()):
            if isinstance(text, str) and set(text) & set("\n\t"):
                mistakes.add(key, "a file and a config on one line", repr(text))
        mistakes.check_name(f"{key}.roof", form.roof, self._roofs, f"one of {', '.join(self._roofs)}")
        problem = problem_name(key, form.problem, self._problems, mistakes)
        if classes := self._tolerances[problem]:
            mistakes.check_name(f"{key}.tolerance", form.tolerance, classes, f"one of {', '.join(classes)}")
        return Variant(
            name=name,
            problem=problem,
            kind=kind,
            technique=fill(form.technique),
            where=self._where(template),
            roof=form.roof,
            tolerance=form.tolerance,
            tolerance_reason=form.tolerance_reason,
            config=config,
            parent=fill(form.parent) if form.parent else None,
            document=form.document,
            predictions=tuple(p for i, f in enumerate(form.predictions) if (p := self._prediction(key, i, f))),
            also=form.also or "",
            **self._compilation(key, template, kind),
        )

    def _compilation(self, key: str, template: _Template, kind: VariantKind) -> dict[str, tuple[str, ...]]:
        """``flags``, ``libraries`` and ``packages`` of a CUDA file, the suite's first; ``packages`` of a reference."""
        result = {}
        for name in ("flags", "libraries", "packages"):
            given = tuple(map(template.fill, getattr(template.form, name)))
            if name == "flags":
                self._check_flags(key, given)
            if isinstance(kind, Cuda):
                result[name] = _words(name, (*getattr(self._manifest, name), *given))
            elif name == "packages" and isinstance(kind, PythonCallable):
                for package in (p for p in given if not p.isidentifier()):
                    self._mistakes.add(f"{key}.packages", "names as Python imports them: flash_attn", repr(package))
                result[name] = given
            elif given:
                self._mistakes.add(f"{key}.{name}", "none: nvcc does not compile this variant", repr([*given]))
        return result

    def _check_flags(self, key: str, flags: Iterable[str]) -> None:
        for flag in filter(_RESERVED.fullmatch, _words("flags", flags)):
            keys = "`archs`, `include`, `libraries` and DEBUG=1"
            expected = f"flags of one file's compilation, without -rdc and what {keys} declare"
            self._mistakes.add(f"{key}.flags".lstrip("."), expected, repr(flag))

    def _kind(self, key: str, form: VariantForm) -> VariantKind | None:
        """The kind that a variant's keys declare; ``None`` if they declare none."""
        if (form.source is None) == (form.callable is None):
            self._mistakes.add(key, "a source or a callable", "both" if form.source else "neither")
            return None
        kind = kind_of(form.model_dump(), self._languages)
        if not (self._root / kind.file).is_file():
            which = "source" if form.source else "callable"
            self._mistakes.add(f"{key}.{which}", "a file of the suite", f"no {kind.file}")
        if form.callable and form.config and not form.cubins:
            expected = "no config for a reference (a callable without `cubins`)"
            self._mistakes.add(f"{key}.config", expected, repr(form.config))
        if form.cubins and not form.callable:
            self._mistakes.add(f"{key}.cubins", "a callable that launches them", "none")
        if form.cubins and form.cubins not in self._languages:
            for arch in form.where.archs or self._manifest.archs:
                folder = self._root / form.cubins / arch
                if not list(folder.glob("*.cubin")) and arch not in form.where.unsupported:
                    expected = ", ".join([*self._languages, f"or a folder with {arch}/*.cubin"])
                    self._mistakes.add(f"{key}.cubins", expected, repr(form.cubins))
        return kind

    def _where(self, template: _Template) -> Where:
        key, where, fill = f"{template.key}.where", template.form.where, template.fill
        archs = [*map(fill, where.archs or self._manifest.archs)]
        unsupported = {fill(arch): fill(reason) for arch, reason in where.unsupported.items()}
        for arch in archs:
            if arch not in self._manifest.archs and not limits(arch):
                names = ", ".join(dict.fromkeys([*self._manifest.archs, *LIMITS]))
                self._mistakes.add(key, f"one of {names}", repr(arch))
        for arch in unsupported:
            if arch not in self._manifest.archs:
                self._mistakes.add(key, f"one of {', '.join(self._manifest.archs)}", repr(arch))
        supported = tuple(arch for arch in archs if arch not in unsupported)
        return Where(supported, tuple(map(fill, where.shapes)), unsupported)

    def _prediction(self, key: str, index: int, form: PredictionForm) -> Prediction | None:
        where = f"{key}.predictions[{index}]"
        if form.before is None and form.after is None:
            self._mistakes.add(where, "a `from`, a `to` or both", "neither")
        if form.shape is not None:
            self._mistakes.check_name(f"{where}.shape", form.shape, self._manifest.shape, "a shape")
        spec = self._mistakes.check_fact(f"{where}.fact", form.fact)
        return Prediction(**form.model_dump(), unit=spec.unit) if spec else None

    def _check_ancestry(self, key: str, name: str, variants: Mapping[str, Variant]) -> None:
        """Rejects a variant that is its own ancestor."""
        line = [name]
        parent = variants[name].parent
        while parent is not None and parent in variants:
            if len(line) > MOST_ANCESTORS:
                self._mistakes.add("variant", f"at most {MOST_ANCESTORS} ancestors per variant", "more")
                return
            if parent in line:
                if parent == name:
                    self._mistakes.add(f"{key}.parent", "no cycle", " → ".join([*line, parent]))
                return
            line.append(parent)
            parent = variants[parent].parent


def _tolerances(file: Path) -> list[str]:
    """The tolerance classes in the problem file's ``TOLERANCES``; empty if it has no such dict."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []  # reported when the problem is loaded
    tables = [s.value for s in body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "TOLERANCES"]
    return [str(k.value) for t in tables if isinstance(t, ast.Dict) for k in t.keys if isinstance(k, ast.Constant)]


def _words(key: str, texts: Iterable[str]) -> tuple[str, ...]:
    """The texts; flags may be several in one text."""
    return tuple(word for text in texts for word in (text.split() if key == "flags" else [text]))


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text
