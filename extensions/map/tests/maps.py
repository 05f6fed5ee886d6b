"""A map's record as a run makes it, with times by formula: `small` wins short rows, `large` long ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from flashcore.model.case import Case, TimeKey
from flashcore.model.record import Fact, Record
from flashcore.model.suite import Params, Shape, Suite
from flashcore_map import table
from flashcore_map.table import MapForm
from tests import factory

TABLE: dict[str, Any] = {
    "problems": ["attention"],
    "params": {
        "B": {"from": 1, "to": 64, "log": True}, "H": 8, "S": {"from": 64, "to": 8192, "step": 64, "log": True},
        "D": [64, 128],
    },
    "conditions": ["B * S <= 65536"],
    "dispatchers": ["chooses"],
    "features": ["S", "B * H", "D"],
    "regret": {"p99": 1.05},
}  # fmt: skip


def times(params: Params) -> dict[str, float]:
    """us of each variant and the reference: `chooses` runs `large` from S = 512, whatever B is."""
    work = float(params["B"]) * float(params["S"]) ** 2 / 65536
    each = {"small": 4 + work, "large": 20 + work / 2}
    return {**each, "chooses": each["large" if float(params["S"]) >= 512 else "small"], "cudnn": 9 + 0.7 * work}


def suite(**changes: Any) -> Suite:
    """A suite with the map `rows`; ``changes`` of its table."""
    variants = [*(factory.variant(n) for n in ("small", "large", "chooses")), factory.reference()]
    form = MapForm.model_validate(TABLE | changes)
    chosen = factory.suite(variants)
    mistakes = list(form.mistakes(chosen))
    assert not mistakes, mistakes
    return factory.suite(variants, tables={"map": {"rows": form.model_dump()}})


def mapped(of: Suite, name: str | None, count: int, seed: int | None) -> Suite:
    """The suite at points of one of its maps."""
    forms = {key: MapForm.model_validate(each) for key, each in of.tables["map"].items()}
    return table.mapped(of, forms, name, count, seed)


def record(
    count: int = 60, of: Callable[[Params], Mapping[str, float]] = times, seed: int = 0, **changes: Any
) -> Record:
    """The record of a map of ``count`` points; a variant that ``of`` leaves out at a point has no time there."""
    chosen = mapped(suite(**changes), "rows", count, seed)
    facts: list[Fact] = []
    samples: dict[TimeKey, tuple[float, ...]] = {}
    for shape in chosen.shapes.values():
        for variant, us in of(shape.params).items():
            facts += [*_facts(variant, shape, us), *factory.formula_facts(variant, shape)]
            samples[Case(variant, shape.name), "back_to_back"] = (us,) * 10
    outcomes = [factory.outcome(v, s.name, "bench") for s in chosen.shapes.values() for v in of(s.params)]
    return factory.bare_record(chosen, facts, raw_samples=samples, outcomes=tuple(outcomes), plans=())


def _facts(variant: str, shape: Shape, us: float) -> list[Fact]:
    return [factory.fact("back_to_back_p50", us, variant, shape=shape.name)] if math.isfinite(us) else []
