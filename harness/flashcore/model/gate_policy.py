"""The default rules: how far a static fact may change from its baseline before the gate fails.

A suite overrides them with ``[[gate.rule]]``; a looser rule needs a reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flashcore.model.suite import GateRule, RuleSeverity
from flashcore.model.text import matches_any


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a fact may change from its baseline.

    Args:
        better: the direction of an improvement; the other is a regression.
        tolerance: the largest accepted regression, as a share of the baseline's value.
        step: allocation granularity: values that round up to the same multiple are equal.
        severity: whether a regression fails the gate, is shown, or is ignored.
    """

    better: Literal["lower", "higher"]
    tolerance: float = 0.0
    step: int = 1
    severity: RuleSeverity = "fail"

    def limit(self, value: float) -> float:
        """The worst value that is not a regression from ``value``."""
        if self.better == "lower":
            raised = math.floor(value * (1 + self.tolerance)) if self.tolerance else value
            return max(value, raised, math.ceil(value / self.step) * self.step)
        return value * (1 - self.tolerance)

    def improves(self, value: float, baseline: float) -> bool:
        """Whether ``value`` is better than ``baseline``."""
        return value < baseline if self.better == "lower" else value > baseline


_LOWER = Allowance("lower")
_FAST_INSTRUCTIONS = Allowance("higher", 0.25)
#: The facts of a baseline. Registers per thread are allocated in multiples of 8. Unrolling changes the number of
#: tensor-core, wide and asynchronous-copy instructions, so these may drop by a quarter.
ALLOWANCES: dict[str, Allowance] = {
    "registers": Allowance("lower", step=8),
    "spill_store_bytes": _LOWER,
    "spill_load_bytes": _LOWER,
    "stack_bytes": _LOWER,
    "smem": _LOWER,
    "workspace_bytes": _LOWER,
    "theoretical_occupancy": Allowance("higher"),
    "compiler_warnings": _LOWER,
    "sass_bar": _LOWER,
    "sass_ldl": _LOWER,
    "sass_stl": _LOWER,
    "sass_local_loop": _LOWER,
    "sass_instructions": Allowance("lower", 0.05, severity="show"),
    "sass_hmma": _FAST_INSTRUCTIONS,
    "sass_hgmma": _FAST_INSTRUCTIONS,
    "sass_ldg_128": _FAST_INSTRUCTIONS,
    "sass_stg_128": _FAST_INSTRUCTIONS,
    "sass_ldsm": _FAST_INSTRUCTIONS,
    "sass_ldgsts": _FAST_INSTRUCTIONS,
    "sass_utmaldg": _FAST_INSTRUCTIONS,
}
PREFIX = "baseline_"  # of the name by which a waiver refers to a baseline's limit: baseline_registers
#: Limits that apply without a budget. A waiver accepts 1 (a wrong answer), the number of failed stages, or 0 (launches
#: differ from the plan). A failed build cannot be waived: declare the arch ``unsupported``, with a reason.
CORRECT, RUNS, AS_PLANNED = "correct", "runs", "as_planned"


def looser(rule: GateRule) -> list[str]:
    """The facts for which ``rule`` is looser than the defaults."""
    weight = {"fail": 0, "show": 1, "ignore": 2}
    return [
        fact
        for fact, default in ALLOWANCES.items()
        if matches_any(fact, rule.facts)
        and (
            weight[rule.severity] > weight[default.severity]
            or (rule.tolerance is not None and rule.tolerance > default.tolerance)
        )
    ]
