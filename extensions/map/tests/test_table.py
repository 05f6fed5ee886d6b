"""Points of a map: seeded, log-uniform, within the conditions; or the most frequent rows of a CSV file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extensions.map.tests import maps
from extensions.map.tests.maps import mapped
from flashcore.errors import ManifestError, UsageError
from flashcore.model.suite import Suite
from flashcore.suites.load import load
from flashcore_map import table
from flashcore_map.table import MapForm, maps_of
from tests import factory
from tests.conftest import ROOT


def shapes(suite: Suite, count: int, seed: int | None = None) -> list[dict[str, Any]]:
    return [dict(shape.params) for shape in mapped(suite, "rows", count, seed).shapes.values()]


def weights(mapped: Suite) -> dict[str, float]:
    return dict(mapped.tables["map"]["rows"]["points"])


def test_a_seed_draws_the_same_points_and_more_points_begin_with_them() -> None:
    suite = maps.suite()
    first = mapped(suite, "rows", 50, 7)
    assert list(mapped(suite, "rows", 80, 7).shapes)[:50] == list(first.shapes) and len(first.shapes) == 50
    assert mapped(suite, "rows", 50, 8) != first and mapped(suite, "rows", 50, 0) == mapped(suite, "rows", 50, None)
    assert weights(first) == dict.fromkeys(first.shapes, 1.0)
    for name, shape in first.shapes.items():
        assert shape.name == name and (shape.stages, shape.rank_by) == (("bench",), "back_to_back")


def test_params_are_in_their_ranges_and_meet_the_conditions() -> None:
    for params in shapes(maps.suite(derived={"H": "B + 1"}, params={**maps.TABLE["params"], "H": 1}), 200):
        assert params["S"] % 64 == 0 and 64 <= params["S"] <= 8192 and 1 <= params["B"] <= 64
        assert params["H"] == params["B"] + 1 and params["B"] * params["S"] <= 65536 and params["D"] in (64, 128)


def test_a_logarithmic_range_is_uniform_over_factors_of_two() -> None:
    params = {**maps.TABLE["params"], "B": 1, "S": {"from": 1024, "to": 1 << 20, "log": True}}
    drawn = [math.floor(math.log2(p["S"])) for p in shapes(maps.suite(params=params, conditions=[]), 1000)]
    count = Counter(drawn)
    assert all(65 < count[octave] < 145 for octave in range(10, 20)), count  # 100 each, less the repeated ones


def test_a_repeated_value_is_more_likely() -> None:
    params = {**maps.TABLE["params"], "D": [64, 128, 128, 128]}
    count = Counter(p["D"] for p in shapes(maps.suite(params=params), 400))
    assert 240 < count[128] < 350


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"problems": ["atention"]}, ["problems", "dispatchers"]),
        ({"params": {**maps.TABLE["params"], "S": {"from": 65, "to": 100, "step": 64}}}, ["params.S"]),
        ({"variants": ["nothing*"], "dispatchers": []}, ["problems"]),
        ({"dispatchers": ["choose"]}, ["dispatchers"]),
        ({"dispatchers": ["large", "chooses"]}, ["dispatchers"]),
        ({"features": ["S == 64"]}, ["features"]),
    ],
)
def test_mistakes_are_told_with_their_field(changes: dict[str, Any], fields: list[str]) -> None:
    form = MapForm.model_validate(maps.TABLE | changes)
    suite = factory.suite([factory.variant(n) for n in ("small", "large", "chooses")])
    assert [field for field, _, _ in form.mistakes(suite)] == fields


def test_conditions_that_hardly_anything_meets_end_with_a_hint() -> None:
    with pytest.raises(UsageError, match=r"expected 5 points, 1 meet the conditions\n  hint: loosen"):
        mapped(maps.suite(params={"B": 1, "H": 8, "S": 64, "D": 64}), "rows", 5, None)
    with pytest.raises(UsageError, match=r"rows: expected a number for each of B, H, S, D, found none for D, found \{"):
        mapped(maps.suite(params={"B": 1, "H": 1, "S": 64}), "rows", 5, None)
    with pytest.raises(UsageError, match=r"map\.rows: expected only the names problem, B, H, S, D"):
        mapped(maps.suite(conditions=["LENGTH > 3"]), "rows", 5, None)
    with pytest.raises(UsageError, match=r"1 // \(H - 8\)"):
        mapped(maps.suite(features=["1 // (H - 8)"]), "rows", 5, None)
    assert mapped(maps.suite(features=["1 // (S - 64)"], conditions=["S > 64"]), "rows", 5, None).shapes
    with pytest.raises(UsageError, match=r"B // \(S - 64\).*found \{"):
        mapped(maps.suite(conditions=["B // (S - 64) > 0"]), "rows", 50, None)


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["kernels/attention_general", *(f"examples/{n}" for n in ("decode", "wide_heads"))])
def test_the_maps_of_this_repository_are_drawn(folder: str) -> None:
    suite = load(ROOT / folder)
    for name in (forms := maps_of(suite)):
        drawn = table.mapped(suite, forms, name, 3, None)
        assert drawn.tables["map"][name]["points"].keys() == drawn.shapes.keys() and len(drawn.shapes) == 3
    assert not suite.tables, "such a suite gates without this extension"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[map.a\n", "map.toml:1: not valid TOML"),
        ("", "map.toml:1: map: expected a value, found nothing"),
        ('[map.a]\nproblems = ["attention"]\n\nfeature = []\n', r"map.toml:4: map.a.feature: expected no such key"),
        ('[map.a]\nproblems = ["atention"]\n', r"map.toml:2: map.a.problems: expected problems with variants"),
    ],
)
def test_mistakes_in_the_file_are_told_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(ManifestError, match=message):
        maps_of(replace(maps.suite(), root=str(tmp_path)))


# --- traffic --------------------------------------------------------------------------------------


def traffic(folder: Path, text: str, **changes: Any) -> Suite:
    Path(folder, "traffic.csv").write_text(text)
    path = str(Path(folder, "traffic.csv"))
    return maps.suite(csv=path, params={"H": 8, "D": 64}, conditions=["S <= 4096"], **changes)


def test_the_most_frequent_rows_come_first_with_their_weight(tmp_path: Path) -> None:
    text = "B,S,weight\n1,64,2\n2,128,5\n1,64,4\n4,8192,100\n8,256,0\n"
    chosen = mapped(traffic(tmp_path, text), "rows", 10, None)
    assert [(s.params["B"], s.params["S"]) for s in chosen.shapes.values()] == [(1, 64), (2, 128)]
    assert list(weights(chosen).values()) == [6.0, 5.0]
    assert len(mapped(traffic(tmp_path, text), "rows", 1, None).shapes) == 1
    assert [*weights(mapped(traffic(tmp_path, "B,S\n1,64\n1,64\n"), "rows", 9, None)).values()] == [2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B,S,weight\n1,64,many\n", "a weight of 0 or more, found in line 2 {.*'many'"),
        (
            "B,S,weight\n1,64,1\n1,64,-1\n",
            "a weight of 0 or more, found in line 3 {.*'-1'",
        ),
        ("B,S\n1,64,5\n", "a value for each, and a weight of 0 or more, found in line 2 "),
        ("B,S\n\n1\n", "found in line 3 "),
        ("B\n1\n", "rows: expected a number for each of B, H, S, D, found none for S, found {.*'B': 1"),
        ("B,S\nx,64\n", "rows: expected a number for each of B, H, S, D, found none for B, found {.*'B': 'x'"),
        ("problem,B,S\nother,1,64\n", "found in line 2 the problem 'other'"),
        ("B,S\n1,8192\n", "0 meet the conditions"),
        ("", "0 meet the conditions"),
    ],
)
def test_a_file_that_does_not_fit_says_what_is_expected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        mapped(traffic(tmp_path, text), "rows", 5, None)
    assert "hint: " in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    suite = traffic(tmp_path, "")
    Path(tmp_path, "traffic.csv").unlink()
    with pytest.raises(UsageError, match=r"traffic.csv: expected a line that names params, .*, found .*No such file"):
        mapped(suite, "rows", 5, None)


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
