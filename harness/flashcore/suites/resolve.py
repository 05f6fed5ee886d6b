"""Turns a manifest's form into a :class:`~flashcore.model.suite.Suite`, checking what spans several entries.

A parent that does not exist, a budget that matches nothing, a template that names no axis: all mistakes
are collected, in the words of :mod:`flashcore.suites.schema`.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from flashcore.chips import devices
from flashcore.chips.occupancy import LIMITS, limits
from flashcore.model import gate_policy, plugin
from flashcore.model.catalogue import FACTS, OWN_STAGE
from flashcore.model.suggest import misspelt
from flashcore.model.suite import (
    DIMENSION,
    Argument,
    Budget,
    GatePolicy,
    GateRule,
    Prediction,
    Problem,
    Shape,
    Suite,
    Variant,
    Waiver,
    Where,
    kind_of,
)
from flashcore.model.text import matches_any
from flashcore.suites.operator_schema import CPP_WORDS, SCALAR_TYPES, parse_schema
from flashcore.suites.schema import (
    MOST_LETTERS,
    BudgetForm,
    GateRuleForm,
    Manifest,
    PredictionForm,
    ProblemForm,
    ScopeForm,
    ShapeForm,
    VariantForm,
    WaiverForm,
)

NAME = re.compile(r"[a-z][a-z0-9_]*")
MOST_POINTS, MOST_ANCESTORS = 10_000, 100
#: What a roof may be of: the roofs suite measures these, and datasheets state rates for others.
ROOFS = ("dram", "l2", "l1", "shared", "exp", "issue", "barrier", "cluster_barrier", "launch")


class Builder:
    """Turns the validated form into the model and collects mistakes that span entries."""

    def __init__(self, manifest: Manifest, root: Path, placed: Callable[[str], str] = str) -> None:
        self.m = manifest
        self.root = root
        self.placed = placed  # puts the file before a key that does not stand in suite.toml
        self.mistakes: list[str] = []
        self.languages = dict(plugin.entries("languages"))
        # `archs` is what a variant is built for unless it says otherwise; it may name more.
        self.archs = tuple(
            dict.fromkeys([*manifest.archs, *(a for v in manifest.variant.values() for a in v.where.archs or ())])
        )

    def build(self) -> Suite:
        m = self.m
        problems = {n: self._problem(n, p) for n, p in m.problem.items()}
        shapes = self._shapes = {n: self._shape(n, s, problems) for n, s in m.shape.items()}
        variants: dict[str, Variant] = {}
        keys: dict[str, str] = {}  # variant → the key it is declared under
        self._roofs = sorted({*ROOFS, *(rate for d in devices.load().values() for rate in d.rates)})
        self._tolerances = {n: _tolerances(self.root / p.file) for n, p in m.problem.items()}
        self._points = 0
        for template, form in m.variant.items():
            for name, variant in self._expand(template, form, problems):
                if name in variants:
                    other = "" if keys[name] == f"variant.{template}" else f", first by {self.placed(keys[name])}"
                    self._wrong(f"variant.{template}", "a name that is used once", f"{name!r} twice{other}")
                variants[name], keys[name] = variant, f"variant.{template}"
        for name, variant in variants.items():
            if variant.parent is not None and variant.parent not in variants:
                self._wrong(f"{keys[name]}.parent", "a variant", misspelt(variant.parent, variants))
            self._ancestry(keys[name], name, variants)
            for pattern in variant.where.shapes:
                if not any(fnmatchcase(s, pattern) for s in shapes):
                    self._wrong(f"{keys[name]}.where.shapes", "globs that match a shape", misspelt(pattern, shapes))
        if m.baseline not in variants:
            self._wrong("baseline", "a variant", misspelt(m.baseline, variants))
        compilers = {v.kind.compiler for v in variants.values() if v.kind.compiler}
        for compiler in sorted(c for c in compilers if getattr(m, c) is None):
            self._wrong(compiler, 'the release that the static budgets are set with, as "13.0"', "nothing")
        for file in m.include:
            if not (self.root / file).is_dir():
                self._wrong("include", "a folder of the suite", repr(file))
        tables = {key: forms for key, _ in plugin.entries("tables") if (forms := getattr(m, key))}
        budgets = tuple(b for i, f in enumerate(m.budget) if (b := self._budget(i, f, variants)))
        names = [b.name for b in budgets]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self._wrong("budget", "each name once", f"{name!r} {names.count(name)} times")
        waivers = tuple(self._waiver(i, w, names, variants) for i, w in enumerate(m.waiver))
        suite = Suite(
            name=m.name,
            title=m.title,
            root=str(self.root),
            nvcc=m.nvcc or "",
            languages={name: release for name in self.languages if (release := getattr(m, name))},
            archs=self.archs,
            baseline=m.baseline,
            problems=problems,
            shapes=shapes,
            variants=variants,
            budgets=budgets,
            waivers=waivers,
            notes=tuple(m.notes),
            include=tuple(m.include),
            gate=GatePolicy(m.gate.baseline, tuple(self._rule(i, r, variants) for i, r in enumerate(m.gate.rule))),
            tables={key: {n: form.model_dump() for n, form in forms.items()} for key, forms in tables.items()},
        )
        for table, forms in tables.items():
            for n, form in forms.items():
                for key, expected, found in form.mistakes(suite):
                    self._wrong(f"{table}.{n}.{key}", expected, found)
        return suite

    def _wrong(self, key: str, expected: str, found: str) -> None:
        self.mistakes.append(self.placed(f"{key}: expected {expected}, found {found}"))

    def _problem(self, name: str, form: ProblemForm) -> Problem:
        key = f"problem.{name}"
        if not (self.root / form.file).is_file():
            self._wrong(f"{key}.file", "a file of the suite", f"no {form.file}")
        arguments: list[Argument] = []
        try:
            parsed = parse_schema(form.op_schema, form.inout)
        except ValueError as error:
            self._wrong(f"{key}.schema", str(error), repr(form.op_schema))
            parsed = []
        dims: dict[str, None] = {}
        for a in parsed:
            if a.kind != "tensor":
                arguments.append(a)
                continue
            if a.name not in form.dims:
                self._wrong(f"{key}.dims.{a.name}", "the names of its dimensions", "nothing")
            dtype = form.dtypes.get(a.name, form.dtypes.get("*", ""))
            if dtype not in SCALAR_TYPES:
                expected = f"one of {', '.join(SCALAR_TYPES)}"
                self._wrong(f"{key}.dtypes.{a.name}", expected, repr(dtype) if dtype else "nothing")
            own = tuple(map(str, form.dims.get(a.name, [])))
            for dim in own:
                if dim in CPP_WORDS:
                    self._wrong(f"{key}.dims.{a.name}", "a name that is not reserved in C++", repr(dim))
            if not a.optional:  # an absent tensor gives no dimension
                dims.update(dict.fromkeys(d for d in own if d.isidentifier()))
            arguments.append(replace(a, dims=own, dtype=dtype, strides=form.strided.get(a.name, "")))
        for a in arguments:
            if lost := [d for d in a.dims if (m := DIMENSION.fullmatch(d)) and m["name"] and m["name"] not in dims]:
                self._wrong(f"{key}.dims.{a.name}", "dimensions that a tensor has as they are", ", ".join(lost))
        tensors = {a.name for a in parsed if a.kind == "tensor"}
        if lost := [n for n in form.inout if parsed and n not in {a.name for a in parsed if a.mutable}]:
            self._wrong(f"{key}.inout", "outputs of the schema, written Tensor(a!)", ", ".join(lost))
        for a in arguments:
            if a.strides and not a.dims:
                self._wrong(f"{key}.strided.{a.name}", "a tensor that has dimensions", "none")
            if a.strides and any(other.name == f"{a.name}_strides" for other in parsed):
                found = f"an argument {a.name}_strides"
                self._wrong(f"{key}.strided.{a.name}", "that name free for its strides", found)
        for table, given in (("dims", form.dims), ("dtypes", form.dtypes), ("strided", form.strided)):
            for unknown in sorted(set(given) - tensors - ({"*"} if table == "dtypes" else set())):
                self._wrong(f"{key}.{table}.{unknown}", "a tensor of the schema", "no such tensor")
        return Problem(name, form.file, form.op_schema, tuple(arguments), tuple(dims), tuple(form.seeds))

    def _problem_name(self, key: str, given: str | None, problems: Mapping[str, Problem]) -> str:
        """The problem that a shape or variant names; without a name the manifest's first, its main one."""
        if given is None:
            return next(iter(problems))
        if given not in problems:
            self._wrong(f"{key}.problem", f"one of {', '.join(problems)}", repr(given))
            return next(iter(problems))
        return given

    def _shape(self, name: str, form: ShapeForm, problems: Mapping[str, Problem]) -> Shape:
        key = f"shape.{name}"
        problem = self._problem_name(key, form.problem, problems)
        for dim in problems[problem].dims:
            size = form.params.get(dim)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                found = "nothing" if size is None else repr(size)
                self._wrong(f"{key}.params.{dim}", "a whole number of at least 1", found)
                return Shape(
                    name, problem, form.params, tuple(form.stages), form.rank_by or self.m.rank_by, form.repeats
                )
        for argument in problems[problem].arguments:
            if argument.optional and not isinstance(given := form.params.get(argument.name, True), bool):
                self._wrong(f"{key}.params.{argument.name}", "true or false: whether it is given", repr(given))
            try:
                if argument.kind == "tensor" and min(argument.sizes(form.params), default=1) < 1:
                    self._wrong(f"{key}.params", f"{argument.name} not to be empty", f"{argument.sizes(form.params)}")
            except KeyError:  # said of the problem
                continue
            except ValueError as error:
                self._wrong(f"{key}.params", f"whole sizes of {argument.name}", str(error))
        return Shape(name, problem, form.params, tuple(form.stages), form.rank_by or self.m.rank_by, form.repeats)

    def _expand(self, template: str, form: VariantForm, problems: Mapping[str, Problem]) -> list[tuple[str, Variant]]:
        sizes = map(len, form.sweep.values()) if isinstance(form.sweep, dict) else [len(form.sweep or [{}])]
        self._points += (size := math.prod(sizes))
        if self._points > MOST_POINTS:
            self._wrong(f"variant.{template}", f"at most {MOST_POINTS:,} variants in all", f"{size:,} more")
            return []
        if isinstance(form.sweep, dict):
            points = [
                dict(zip(form.sweep, combination, strict=True))
                for combination in itertools.product(*form.sweep.values())
            ]
        else:
            points = form.sweep or [{}]
        return [v for point in points if (v := self._variant(template, form, point, problems))]

    def _variant(
        self,
        template: str,
        form: VariantForm,
        point: Mapping[str, int | str],
        problems: Mapping[str, Problem],
    ) -> tuple[str, Variant] | None:
        key = f"variant.{template}"

        def fill(text: str) -> str:
            try:
                return text.format_map(point)
            except (LookupError, ValueError, AttributeError, TypeError) as error:
                axes = ", ".join(point) or "no sweep axes"
                self._wrong(key, f"only the names {axes} in braces", f"{text!r} ({error})")
                return text

        name = fill(template)
        if not NAME.fullmatch(name) or len(name) > MOST_LETTERS:
            self._wrong(key, f"a name of at most {MOST_LETTERS} letters matching {NAME.pattern}", repr(name[:200]))
            return None
        if (form.source is None) == (form.callable is None):
            found = "both" if form.source else "neither"
            self._wrong(key, "a source or a callable", found)
            return None
        file = form.source or (form.callable or "").split(":")[0]
        if not (self.root / file).is_file():
            which = "source" if form.source else "callable"
            self._wrong(f"{key}.{which}", "a file of the suite", f"no {file}")
        if form.callable and form.config and not form.cubins:
            self._wrong(f"{key}.config", "no config for a callable without `cubins`, a peer", repr(form.config))
        if form.cubins and not form.callable:
            self._wrong(f"{key}.cubins", "a callable that launches them", "none")
        if form.cubins and form.cubins not in self.languages:
            for arch in form.where.archs or self.m.archs:
                folder = self.root / form.cubins / arch
                if not list(folder.glob("*.cubin")) and arch not in form.where.unsupported:
                    expected = ", ".join([*self.languages, f"or a folder with {arch}/*.cubin"])
                    missing = plugin.missing("languages", form.cubins)
                    self._wrong(f"{key}.cubins", expected, repr(form.cubins) + missing)
        if form.document and form.document not in self.m.documents:
            known = ", ".join(self.m.documents) or "none"
            self._wrong(f"{key}.document", f"one of documents ({known})", repr(form.document))
        config = {k: _number(fill(v)) if isinstance(v, str) else v for k, v in form.config.items()}
        for text in (file, *config.values()):
            if isinstance(text, str) and set(text) & set("\n\t"):
                self._wrong(key, "a file and a config on one line", repr(text))
        if form.roof not in self._roofs:
            self._wrong(f"{key}.roof", f"one of {', '.join(self._roofs)}", misspelt(form.roof, self._roofs))
        problem = self._problem_name(key, form.problem, problems)
        if (classes := self._tolerances[problem]) and form.tolerance not in classes:
            self._wrong(f"{key}.tolerance", f"one of {', '.join(classes)}", misspelt(form.tolerance, classes))
        archs = tuple(form.where.archs or self.m.archs)
        for arch in archs:
            if arch not in self.m.archs and not limits(arch):
                known = ", ".join(dict.fromkeys([*self.m.archs, *LIMITS]))
                self._wrong(f"{key}.where", f"archs that are known ({known})", repr(arch))
        for arch in form.where.unsupported:
            if arch not in self.m.archs:
                self._wrong(f"{key}.where", f"archs among {', '.join(self.m.archs)}", repr(arch))
        return name, Variant(
            name=name,
            problem=problem,
            kind=kind_of(form.model_dump(), self.languages),
            technique=fill(form.technique),
            where=Where(
                tuple(a for a in archs if a not in form.where.unsupported),
                tuple(form.where.shapes),
                form.where.unsupported,
            ),
            roof=form.roof,
            tolerance=form.tolerance,
            tolerance_reason=form.tolerance_reason,
            config=config,
            parent=fill(form.parent) if form.parent else None,
            document=form.document,
            predictions=tuple(p for i, f in enumerate(form.predictions) if (p := self._prediction(key, i, f))),
            also=form.also or "",
        )

    def _prediction(self, key: str, index: int, form: PredictionForm) -> Prediction | None:
        where = f"{key}.predictions[{index}]"
        if form.before is None and form.after is None:
            self._wrong(where, "a `from`, a `to` or both", "neither")
        if form.shape is not None and form.shape not in self.m.shape:
            self._wrong(f"{where}.shape", "a shape", misspelt(form.shape, self.m.shape))
        spec = FACTS.get(form.fact)
        if spec is None:
            self._wrong(f"{where}.fact", "a fact (see: flashcore list --facts)", misspelt(form.fact, FACTS))
            return None
        return Prediction(form.fact, form.before, form.after, spec.unit, form.source, form.device, form.shape)

    def _ancestry(self, key: str, name: str, variants: Mapping[str, Variant]) -> None:
        seen = [name]
        parent = variants[name].parent
        while parent is not None and parent in variants:
            if len(seen) > MOST_ANCESTORS:
                self.mistakes += [f"variant: expected at most {MOST_ANCESTORS} ancestors of each, found more"]
                return
            if parent in seen:
                if parent == name:
                    self._wrong(f"{key}.parent", "no circle", " → ".join([*seen, parent]))
                return
            seen.append(parent)
            parent = variants[parent].parent

    def _globs(self, key: str, globs: list[str], names: Any, what: str) -> tuple[str, ...]:
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in names):
                self._wrong(key, f"globs that match a {what}", misspelt(glob, names))
        return tuple(globs)

    def _scope(self, key: str, form: ScopeForm, globs: list[str], variants: Mapping[str, Variant]) -> dict[str, Any]:
        return {
            "variants": self._globs(f"{key}.variants", globs, variants, "variant"),
            "archs": self._globs(f"{key}.archs", form.archs, self.archs, "suite's arch"),
            "shapes": self._globs(f"{key}.shapes", form.shapes, self.m.shape, "shape"),
            "kernels": tuple(form.kernels),
        }

    def _budget(self, index: int, form: BudgetForm, variants: Mapping[str, Variant]) -> Budget | None:
        key = f"budget[{index}] ({form.name})"
        if form.min is None and form.max is None:
            self._wrong(key, "a `min`, a `max` or both", "neither")
        elif form.min is not None and form.max is not None and form.min > form.max:
            self._wrong(key, "min <= max", f"{form.min} > {form.max}")
        spec = FACTS.get(form.fact)
        if spec is None:
            self._wrong(f"{key}.fact", "a fact (see: flashcore list --facts)", misspelt(form.fact, FACTS))
            return None
        if spec.tier is None:
            self._wrong(f"{key}.fact", "a fact with a number to limit", repr(form.fact))
            return None
        globs = list(form.variants)
        if form.documents is not None:
            for document in form.documents:
                if document not in self.m.documents:
                    self._wrong(f"{key}.documents", "a document of the manifest", repr(document))
            globs = [
                n
                for n, v in variants.items()
                if v.document in form.documents and any(fnmatchcase(n, g) for g in form.variants)
            ]
            if not globs:
                self._wrong(f"{key}.documents", "documents of at least one variant", "no variant")
        budget = Budget(
            name=form.name,
            fact=form.fact,
            unit=spec.unit,
            tier=spec.tier,
            severity=form.severity,
            source=form.source,
            minimum=form.min,
            maximum=form.max,
            stretch=form.stretch,
            **self._scope(key, form, globs, variants),
            device=form.device,
        )
        own = [v for v in variants.values() if not v.is_reference and matches_any(v.name, budget.variants)]
        if not any(self._is_about(budget, v) for v in own):
            expected = "a case that it is about: a variant that is no peer, on archs and shapes that it supports"
            self._wrong(key, expected, "none")
        return budget

    def _is_about(self, budget: Budget, variant: Variant) -> bool:
        spec = FACTS[budget.fact]
        formula, static = spec.group == "formula", budget.tier == "static"
        if not formula and not any(matches_any(a, budget.archs) for a in variant.where.archs):
            return False
        stage = "bench" if budget.tier == "timing" else OWN_STAGE.get(spec.group, "profile")
        shapes = [s for s in self._shapes.values() if matches_any(s.name, budget.shapes) and variant.runs_on(s)]
        return (static and budget.shapes == ("*",)) or any(static or stage in s.stages for s in shapes)

    def _rule(self, index: int, form: GateRuleForm, variants: Mapping[str, Variant]) -> GateRule:
        key = f"gate.rule[{index}]"
        rule = GateRule(
            facts=self._globs(f"{key}.facts", form.facts, gate_policy.ALLOWANCES, "fact of a baseline"),
            severity=form.severity,
            tolerance=form.tolerance,
            **self._scope(key, form, form.variants, variants),
            reason=form.reason or "",
            expires=form.expires.isoformat() if form.expires else None,
        )
        if (facts := gate_policy.looser(rule)) and not rule.reason:
            self._wrong(f"{key}.reason", f"why {', '.join(facts)} may get worse", "nothing")
        return rule

    def _waiver(self, index: int, form: WaiverForm, budgets: list[str], variants: Mapping[str, Variant]) -> Waiver:
        key = f"waiver[{index}] ({form.budget})"
        # Limits of the baseline and promises without a budget can be waived too: baseline_registers, runs.
        implicit = (gate_policy.CORRECT, gate_policy.RUNS, gate_policy.AS_PLANNED)
        baseline = form.budget.removeprefix(gate_policy.PREFIX)
        if form.budget not in (*budgets, *implicit) and baseline not in gate_policy.ALLOWANCES:
            self._wrong(f"{key}.budget", "the name of a budget", misspelt(form.budget, budgets))
        return Waiver(
            budget=form.budget,
            **self._scope(key, form, form.variants, variants),
            accepted=form.accepted,
            reason=form.reason,
            expires=form.expires.isoformat() if form.expires else None,
        )


def _tolerances(file: Path) -> list[str]:
    """The classes that a problem's file lists in its ``TOLERANCES``; none if it has no such table."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []  # reported elsewhere, or by Python when the problem is loaded
    tables = [s.value for s in body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "TOLERANCES"]
    return [str(k.value) for t in tables if isinstance(t, ast.Dict) for k in t.keys if isinstance(k, ast.Constant)]


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text
