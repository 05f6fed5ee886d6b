"""The suite that a map times: the points in place of its shapes, the map's variants, and no budgets."""

from __future__ import annotations

from dataclasses import replace

from flashcore.plugins.map import measure
from flashcore.plugins.map.table import points
from tests import factory
from tests.plugins.map import maps


def test_a_map_replaces_the_shapes_by_its_points() -> None:
    suite = maps.suite(variants=["small", "chooses"])
    budgets = (factory.budget("registers", maximum=1),)
    elsewhere = factory.variant("other_problem", problem="other")
    suite = replace(suite, budgets=budgets, variants={**suite.variants, "other_problem": elsewhere})
    suite = replace(suite, variants={n: replace(v, parent="large") for n, v in suite.variants.items()})
    chosen = points(suite, "rows", 5, None)
    mapped = measure.mapped(suite, chosen)
    assert mapped.shapes == chosen.shapes
    assert list(mapped.variants) == ["small", "chooses"] and mapped.baseline == "small" and not mapped.budgets
    for variant in mapped.variants.values():
        assert all(variant.runs_on(shape) for shape in mapped.shapes.values())
        assert variant.parent is None and not variant.predictions, "no case is timed for another's sake"
    assert mapped.tables["map"]["rows"]["points"] == dict.fromkeys(chosen.shapes, 1.0)


def test_a_variants_shapes_in_the_suite_do_not_limit_its_points() -> None:
    suite = maps.suite()
    limited = {n: replace(v, where=replace(v.where, shapes=("mission",))) for n, v in suite.variants.items()}
    mapped = measure.mapped(replace(suite, variants=limited), points(suite, "rows", 3, None))
    assert all(v.runs_on(s) for v in mapped.variants.values() for s in mapped.shapes.values())
