"""How far a static fact may move from its baseline before the gate fails: the default rules.

A suite changes them with ``[[gate.rule]]``; a rule that is looser than these needs a reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from flashcore.model.suite import GateRule, RuleSeverity


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a fact may do.

    Args:
        better: which way is better; the other way is a regression.
        tolerance: how far the wrong way is still the same, as a share of the baseline's value.
        step: values in one step of this size cost the same, so that only the next step counts.
        severity: what a regression does: fail the gate, be shown, or nothing.
    """

    better: Literal["lower", "higher"]
    tolerance: float = 0.0
    step: int = 1
    severity: RuleSeverity = "fail"

    def limit(self, value: float) -> float:
        """The worst value that still counts as no regression from ``value``."""
        if self.better == "lower":
            raised = math.floor(value * (1 + self.tolerance)) if self.tolerance else value
            return max(value, raised, math.ceil(value / self.step) * self.step)
        return value * (1 - self.tolerance)

    def improves(self, value: float, baseline: float) -> bool:
        """Whether ``value`` is better than ``baseline``."""
        return value < baseline if self.better == "lower" else value > baseline


_LOWER = Allowance("lower")
_KEPT = Allowance("higher", 0.25)
#: Every fact that a baseline holds. Registers are allocated to warps in multiples of 8. The number of tensor-core and
#: of wide or asynchronous copy instructions may change with unrolling, but not by more than a quarter downward.
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
    "sass_hmma": _KEPT,
    "sass_hgmma": _KEPT,
    "sass_ldg_128": _KEPT,
    "sass_stg_128": _KEPT,
    "sass_ldsm": _KEPT,
    "sass_ldgsts": _KEPT,
    "sass_utmaldg": _KEPT,
}
PREFIX = "baseline_"  # of the budget that a waiver names: baseline_registers
#: Limits that apply without a budget. A waiver accepts 1 wrong answer, so many failed stages, or 0 (a launch that is
#: not as planned); that a variant builds cannot be waived: it is ``unsupported`` on an arch, with its reason.
CORRECT, RUNS, AS_PLANNED = "correct", "runs", "as_planned"


def looser(rule: GateRule) -> list[str]:
    """The facts for which ``rule`` allows more than the default rules do."""
    weight = {"fail": 0, "show": 1, "ignore": 2}
    return [
        fact
        for fact, default in ALLOWANCES.items()
        if any(fnmatchcase(fact, glob) for glob in rule.facts)
        and (
            weight[rule.severity] > weight[default.severity]
            or (rule.tolerance is not None and rule.tolerance > default.tolerance)
        )
    ]
