"""The facts of each case that a budget or a prediction is on: these are always measured in full."""

from __future__ import annotations

from collections.abc import Mapping

from flashcore.chips import devices
from flashcore.model.suite import Suite
from flashcore.model.text import matches_any


def always_measured(suite: Suite, gpu: str | None, shape: str) -> Mapping[str, set[str]]:
    """By variant, the facts that budgets on this GPU, its predictions and those of its children need at a shape."""
    facts: dict[str, set[str]] = {name: set() for name in suite.variants}
    for variant in suite.variants.values():
        for prediction in variant.predictions:
            if prediction.shape in (None, shape):
                facts[variant.name].add(prediction.fact)
                facts.get(variant.parent or "", set()).add(prediction.fact)
    for budget in suite.budgets:
        if matches_any(shape, budget.shapes) and (budget.device is None or devices.is_called(gpu, budget.device)):
            for name, variant in suite.variants.items():
                if not variant.is_reference and matches_any(name, budget.variants):
                    facts[name].add(budget.fact)
    return facts
