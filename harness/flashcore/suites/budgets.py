"""Converts budgets, waivers and gate rules of a manifest, and budgets of a separate file.

A separate file is for records without a suite on disk. Its facts may also be ncu metrics, in ncu's unit.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flashcore.chips import devices
from flashcore.errors import ManifestError, UsageError
from flashcore.model import gate_policy
from flashcore.model.catalogue import DECISION, FACTS, GROUP_STAGE, FactSpec, spec_of
from flashcore.model.compiler_decisions import meanings
from flashcore.model.suite import Budget, Decision, GateRule, Shape, Variant, Waiver
from flashcore.model.text import matches_any, misspelled
from flashcore.suites import lines, schema
from flashcore.suites.mistakes import Mistakes
from flashcore.suites.schema import BudgetForm, DecisionForm, GateRuleForm, Manifest, ScopeForm, WaiverForm


def _budget(form: BudgetForm, spec: FactSpec, scope: Mapping[str, Any]) -> Budget:
    """The budget that a form declares on a numeric fact."""
    fields = form.model_dump(exclude={"documents", *DecisionForm.model_fields})
    return Budget(**{**fields, "unit": spec.unit, "tier": spec.tier, **scope})


def decision_of(key: str, form: BudgetForm, mistakes: Mistakes) -> Decision | None:
    """The compiler decision that a budget limits; ``None`` if it limits a fact."""
    must, must_not = ((n,) if isinstance(n, str) else tuple(n) for n in (form.must, form.must_not))
    places = form.model_dump(include={"function", "mark", "quote"}, exclude_none=True)
    if not must and not must_not:
        for name in places:
            mistakes.add(f"{key}.{name}", "it with `must` or `must_not`", "neither")
        return None
    for name in (*(re.sub(r"^[1-9]\d* ", "", name) for name in must), *must_not):
        mistakes.check_name(key, name, meanings(), "the name of a compiler decision")
    limits = {"fact", "severity", "minimum", "maximum", "stretch", "device"}
    beyond = [*form.model_dump(include=limits, exclude_defaults=True), *list(places)[1:]]
    if beyond:
        expected = "with `must` and `must_not` no fact, no limit, no goal, and one piece of the source"
        mistakes.add(key, expected, ", ".join(beyond))
    return Decision(must, must_not, **places)


def _check_limits(key: str, form: BudgetForm, mistakes: Mistakes) -> None:
    low, high = form.minimum, form.maximum
    if low is None and high is None:
        mistakes.add(key, "a `min`, a `max` or both", "neither")
    elif low is not None and high is not None and low > high:
        mistakes.add(key, "min <= max", f"{low} > {high}")
    if form.device is not None and not devices.is_name(form.device):
        expected = "a GPU of the device table, or its whole name (NVIDIA …)"
        mistakes.add(f"{key}.device", expected, misspelled(form.device, devices.load()))


# --- a manifest -----------------------------------------------------------------------------------


@dataclass
class DeclaredLimits:
    """Converts a manifest's budgets, waivers and gate rules, and collects the mistakes in them.

    Args:
        archs: every arch that a variant targets.
    """

    manifest: Manifest
    archs: Sequence[str]
    shapes: Mapping[str, Shape]
    variants: Mapping[str, Variant]
    mistakes: Mistakes

    def budgets(self) -> tuple[Budget, ...]:
        budgets = tuple(filter(None, starmap(self._declared, enumerate(self.manifest.budget))))
        names = [b.name for b in budgets]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.mistakes.add("budget", "unique names", f"{name!r} {names.count(name)} times")
        return budgets

    def _scope(self, key: str, form: ScopeForm, globs: Sequence[str]) -> dict[str, Any]:
        check = self.mistakes.check_globs
        return {
            "variants": check(f"{key}.variants", globs, self.variants, "variant"),
            "archs": check(f"{key}.archs", form.archs, self.archs, "suite's arch"),
            "shapes": check(f"{key}.shapes", form.shapes, self.shapes, "shape"),
            "kernels": tuple(form.kernels),
        }

    def _declared(self, index: int, form: BudgetForm) -> Budget | None:
        key = f"budget[{index}]"
        if decision := decision_of(key, form, self.mistakes):
            form = form.model_copy(update={"fact": DECISION + form.name, "maximum": 0})
        _check_limits(key, form, self.mistakes)
        spec = self.mistakes.check_fact(f"{key}.fact", form.fact or "")
        if spec is None:
            return None
        if spec.tier is None:
            self.mistakes.add(f"{key}.fact", "a numeric fact", repr(form.fact))
            return None
        scope = self._scope(key, form, self._names(key, form)) | {"decision": decision}
        budget = _budget(form, spec, scope)
        if not any(
            self._applies_to(budget, v)
            for v in self.variants.values()
            if not v.is_reference and matches_any(v.name, budget.variants)
        ):
            case = "a variant that is no reference, on an arch and shape that it supports"
            self.mistakes.add(key, f"{form.name} to apply to a case: {case}", "none")
        return budget

    def _names(self, key: str, form: BudgetForm) -> list[str]:
        """The globs of a budget's variants, or the names of the matching variants of its documents."""
        if form.documents is None:
            return form.variants
        for document in form.documents:
            if document not in self.manifest.documents:
                self.mistakes.add(f"{key}.documents", "a document of the manifest", repr(document))
        names = [n for n, v in self.variants.items() if v.document in form.documents and matches_any(n, form.variants)]
        if not names:
            self.mistakes.add(f"{key}.documents", "documents of at least one variant", "no variant")
        return names

    def _applies_to(self, budget: Budget, variant: Variant) -> bool:
        spec = FACTS[budget.fact]
        static = budget.tier == "static"
        if spec.group != "formula" and not any(matches_any(a, budget.archs) for a in variant.where.archs):
            return False
        stage = "bench" if budget.tier == "timing" else GROUP_STAGE.get(spec.group, "profile")
        shapes = [s for s in self.shapes.values() if matches_any(s.name, budget.shapes) and variant.runs_on(s)]
        return (static and budget.shapes == ("*",)) or any(static or stage in s.stages for s in shapes)

    def rules(self) -> tuple[GateRule, ...]:
        return tuple(starmap(self._rule, enumerate(self.manifest.gate.rule)))

    def _rule(self, index: int, form: GateRuleForm) -> GateRule:
        key = f"gate.rule[{index}]"
        facts = self.mistakes.check_globs(f"{key}.facts", form.facts, gate_policy.ALLOWANCES, "fact of a baseline")
        scope = self._scope(key, form, form.variants)
        rule = GateRule(**{**dict(form), "facts": facts, "reason": form.reason or "", **scope})
        if (loose := gate_policy.looser(rule)) and not rule.reason:
            self.mistakes.add(f"{key}.reason", f"why {', '.join(loose)} may get worse", "nothing")
        return rule

    def waivers(self, budgets: Sequence[Budget]) -> tuple[Waiver, ...]:
        names = [b.name for b in budgets]
        return tuple(self._waiver(i, form, names) for i, form in enumerate(self.manifest.waiver))

    def _waiver(self, index: int, form: WaiverForm, budgets: Sequence[str]) -> Waiver:
        key = f"waiver[{index}]"
        # The baseline's limits and implicit ones can be waived too: baseline_registers, runs.
        implicit = (gate_policy.CORRECT, gate_policy.RUNS, gate_policy.AS_PLANNED)
        if form.budget.removeprefix(gate_policy.PREFIX) not in {*implicit, *gate_policy.ALLOWANCES}:
            self.mistakes.check_name(f"{key}.budget", form.budget, budgets, "the name of a budget")
        return Waiver(**{**dict(form), **self._scope(key, form, form.variants)})


# --- a separate file ------------------------------------------------------------------------------


class BudgetOfAny(BudgetForm):
    """``[[budget]]`` on a fact of the catalogue or an ncu metric."""

    fact: schema.Text
    source: schema.Text = "budgets"


class BudgetFile(schema.Form):
    """A file of budgets."""

    budget: list[BudgetOfAny]


def parsed(path: Path, form: type[schema.Form]) -> tuple[Any, Mistakes]:
    """The file parsed into ``form``, and a collector for further mistakes.

    Raises:
        UsageError: the file cannot be read.
        ManifestError: it is wrong; lists every mistake.
    """
    try:
        text = path.read_bytes()
        data = tomllib.loads(text.decode("utf-8"))
        locate = partial(lines.located, path.name, text)
        return form.model_validate(data), Mistakes(locate)
    except OSError as error:
        raise UsageError(f"{path}: expected a file of budgets, cannot read it: {error.strerror}") from error
    except ValidationError as error:
        raise ManifestError(str(path), [*starmap(locate, schema.mistakes(error.errors(), data, form))]) from error
    except ValueError as error:
        raise ManifestError(str(path), [lines.invalid(path.name, error)]) from error


def read(path: Path) -> tuple[Budget, ...]:
    """The budgets of a file.

    Raises:
        UsageError, ManifestError: see :func:`parsed`.
    """
    file, mistakes = parsed(path, BudgetFile)
    if not file.budget:
        mistakes.add("budget", "at least one [[budget]]", "none")
    budgets = [*filter(None, (_of_any(i, form, mistakes) for i, form in enumerate(file.budget)))]
    if mistakes.lines:
        raise ManifestError(str(path), mistakes.lines)
    return tuple(budgets)


def _of_any(index: int, form: BudgetOfAny, mistakes: Mistakes) -> Budget | None:
    key = f"budget[{index}]"
    spec = spec_of(form.fact)
    if spec is None or spec.tier is None or (form.fact not in FACTS and "__" not in form.fact):
        expected = "a numeric fact (flashcore list --facts), or an ncu metric"
        mistakes.add(f"{key}.fact", expected, misspelled(form.fact, FACTS))
    _check_limits(key, form, mistakes)
    for only in ("documents", *DecisionForm.model_fields):
        if getattr(form, only):
            mistakes.add(f"{key}.{only}", "only in a manifest", "it here")
    globs = {field: tuple(getattr(form, field)) for field in ScopeForm.model_fields}
    return _budget(form, spec, globs) if spec and spec.tier else None
