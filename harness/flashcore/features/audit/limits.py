"""An audit's limits: the table ``[audit]`` of ``flashcore.toml`` in the current folder, and options."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from flashcore.errors import ManifestError
from flashcore.model.catalogue import DECISION
from flashcore.model.suite import Decision, GatePolicy, GateRule, Suite
from flashcore.suites.budgets import DeclaredLimits, decision_of, parsed
from flashcore.suites.mistakes import Mistakes
from flashcore.suites.schema import BudgetForm, Form, GateForm, Manifest, Text, WaiverForm

FILE = "flashcore.toml"


class AuditForm(GateForm):
    """``[audit]``: ``max`` and ``min`` are budgets of every kernel, named ``max_FACT`` and ``min_FACT``."""

    files: list[Text] = Field(default=[])
    maximum: dict[str, float] = Field(default={}, alias="max")
    minimum: dict[str, float] = Field(default={}, alias="min")
    exceptions: list[Text] = Field(default=[], alias="except")
    budget: list[BudgetForm] = Field(default=[])
    waiver: list[WaiverForm] = Field(default=[])


class ProjectFile(Form):
    """The file."""

    audit: AuditForm


def read(path: Path | None) -> tuple[AuditForm, dict[str, Decision]]:
    """The table of a file, and its budgets' compiler decisions by fact; empty if the file does not exist.

    Raises:
        ManifestError: the file is wrong; lists every mistake.
    """
    if not path or not path.is_file():
        return AuditForm(), {}
    file, mistakes = parsed(path, ProjectFile)
    decisions = {
        DECISION + budget.name: decision
        for i, budget in enumerate(file.audit.budget)
        if (decision := decision_of(f"audit.budget[{i}]", budget, mistakes))
    }
    if mistakes.lines:
        raise ManifestError(FILE, mistakes.lines)
    return file.audit, decisions


def limit(text: str) -> tuple[str, float]:
    """Parses a value of ``--max`` or ``--min``.

    Raises:
        ArgumentTypeError: it has no finite number.
    """
    fact, _, value = text.partition("=")
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(value)):
            return fact, number
    raise argparse.ArgumentTypeError(f"expected FACT=NUMBER, such as registers=128, found {text!r}")


def limited(
    suite: Suite, form: AuditForm, options: argparse.Namespace, kernels: Collection[str]
) -> tuple[Suite, list[str]]:
    """The suite with the budgets and waivers of the table and the options, and their mistakes."""
    everywhere = [
        BudgetForm.model_construct(name=f"{bound[:3]}_{fact}", fact=fact, source="flashcore audit", **{bound: value})
        for bound in ("maximum", "minimum")
        for fact, value in (*getattr(form, bound).items(), *getattr(options, bound))
    ]
    mistakes = Mistakes()
    manifest = Manifest.model_construct(budget=[*form.budget, *everywhere], waiver=form.waiver, gate=form, documents={})
    limits = DeclaredLimits(manifest, suite.archs, suite.shapes, suite.variants, mistakes)
    budgets = limits.budgets()
    waivers = limits.waivers(budgets)
    excepted = mistakes.check_globs("except", (*form.exceptions, *options.exceptions), kernels, "kernel")
    mistakes.check_globs("kernel", [options.kernel], kernels or ["*"], "kernel")
    budgets = tuple(replace(b, kernels=(*b.kernels, *(f"!{glob}" for glob in excepted))) for b in budgets)
    ignored = [GateRule(("*",), "ignore", kernels=excepted, reason=" ".join(("except", *excepted)))] if excepted else []
    policy = GatePolicy(rules=(*limits.rules(), *ignored))
    budgets = (*suite.budgets, *budgets)
    return replace(suite, budgets=budgets, waivers=waivers, gate=policy, manifests=(FILE,)), mistakes.lines
