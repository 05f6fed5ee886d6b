"""Converts a manifest's form into a :class:`~flashcore.model.suite.Suite`, and checks references between entries.

It collects every mistake: a parent that does not exist, a budget that matches nothing, a template with an unknown axis.
"""

from __future__ import annotations

from pathlib import Path

from flashcore.model import plugin
from flashcore.model.suite import GatePolicy, Suite
from flashcore.suites.budgets import DeclaredLimits
from flashcore.suites.mistakes import Mistakes
from flashcore.suites.problems import problem, same, shape
from flashcore.suites.schema import Manifest
from flashcore.suites.variants import Variants


def resolve(manifest: Manifest, root: Path, mistakes: Mistakes) -> Suite:
    """The suite of a manifest in ``root``. It is only valid if ``mistakes`` stays empty."""
    problems = {name: problem(name, form, root, mistakes) for name, form in manifest.problem.items()}
    shapes = {name: shape(name, form, problems, manifest.rank_by, mistakes) for name, form in manifest.shape.items()}
    for alias in (s for s in shapes.values() if s.same_as and not mistakes.lines):
        same(alias, shapes, problems, mistakes)
    variants = Variants(manifest, root, problems, mistakes).make(shapes)
    mistakes.check_name("baseline", manifest.baseline, variants, "a variant")
    for compiler in sorted({v.kind.compiler for v in variants.values()} - {""}):
        if getattr(manifest, compiler) is None:
            mistakes.add(compiler, 'the release that the static budgets apply to, such as "13.0"', "nothing")
    for file in manifest.include:
        if not (root / file).is_dir():
            mistakes.add("include", "a folder of the suite", repr(file))
    # `archs` is the default of variants; their lists may add others.
    declared = (arch for form in manifest.variant.values() for arch in form.where.archs or ())
    archs = tuple(dict.fromkeys([*manifest.archs, *declared]))
    limits = DeclaredLimits(manifest, archs, shapes, variants, mistakes)
    budgets = limits.budgets()
    tables = {key: forms for key, _ in plugin.entries("tables") if (forms := getattr(manifest, key))}
    suite = Suite(
        name=manifest.name,
        title=manifest.title,
        root=str(root),
        nvcc=manifest.nvcc or "",
        languages={name: release for name, _ in plugin.entries("languages") if (release := getattr(manifest, name))},
        archs=archs,
        baseline=manifest.baseline,
        problems=problems,
        shapes=shapes,
        variants=variants,
        budgets=budgets,
        waivers=limits.waivers(budgets),
        notes=tuple(manifest.notes),
        include=tuple(manifest.include),
        gate=GatePolicy(manifest.gate.baseline, limits.rules()),
        tables={key: {name: form.model_dump() for name, form in forms.items()} for key, forms in tables.items()},
    )
    for table, forms in tables.items():
        for name, form in forms.items():
            if form.named_by:
                expected = f"one of the suite's {form.named_by}"
                mistakes.check_name(f"{table}.{name}", name, getattr(suite, form.named_by), expected)
            for key, expected, actual in form.mistakes(suite):
                mistakes.add(f"{table}.{name}.{key}", expected, actual)
    return suite
