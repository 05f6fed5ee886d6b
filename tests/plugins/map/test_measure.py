"""The suite that a map times: the points in place of its shapes, the map's variants, and no budgets."""

from __future__ import annotations

from dataclasses import replace

from flashcore.plugins.map.table import mapped
from tests import factory
from tests.plugins.map import maps


def test_a_map_replaces_the_shapes_by_its_points() -> None:
    suite = maps.suite(variants=["small", "chooses"])
    budgets = (factory.budget("registers", maximum=1),)
    elsewhere = factory.variant("other_problem", problem="other")
    suite = replace(suite, budgets=budgets, variants={**suite.variants, "other_problem": elsewhere})
    suite = replace(suite, variants={n: replace(v, parent="large") for n, v in suite.variants.items()})
    result = mapped(suite, None, 5, None)
    assert len(result.shapes) == 5 and suite.shapes.keys().isdisjoint(result.shapes)
    assert list(result.variants) == ["small", "chooses"] and result.baseline == "small" and not result.budgets
    for variant in result.variants.values():
        assert all(variant.runs_on(shape) for shape in result.shapes.values())
        assert variant.parent is None and not variant.predictions, "no case is timed for another's sake"
    assert result.tables["map"]["rows"]["points"] == dict.fromkeys(result.shapes, 1.0)


def test_a_variants_shapes_in_the_suite_do_not_limit_its_points() -> None:
    suite = maps.suite()
    limited = {n: replace(v, where=replace(v.where, shapes=("mission",))) for n, v in suite.variants.items()}
    result = mapped(replace(suite, variants=limited), "rows", 3, None)
    assert all(v.runs_on(s) for v in result.variants.values() for s in result.shapes.values())
