"""A fitted dispatcher: its parts, its cross-validated regret, and its C++, which a compiler reads."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from extensions.map.tests import maps
from flashcore.errors import UsageError
from flashcore.model.suite import Params
from flashcore_map import tree
from flashcore_map.regions import Regions


def steps(params: Params) -> dict[str, float]:
    """`small` wins below 1024 at D = 64, `large` elsewhere; the other takes half as long again."""
    small = float(params["S"]) < 1024 and params["D"] == 64
    return {"small": 2.0 if small else 3.0, "large": 3.0 if small else 2.0, "chooses": 3.0}


def p99(source: str) -> float:
    match = re.search(r"regret.* p99 ([\d.]+) \[", source)
    assert match is not None
    return float(match[1])


def test_the_parts_are_the_regions() -> None:
    regions = Regions(maps.record(80, of=steps))
    parts = tree.fitted(regions.spots, ["S", "B * H", "D"])
    assert {part.variants[0] for part in parts} == {"small", "large"} and len(parts) == 3
    assert sum(len(part.spots) for part in parts) == 80
    assert all(part.regret(spot) == 1.0 for part in parts for spot in part.spots)
    assert not any("B * H" in test for part in parts for test in part.tests), (
        "a feature that decides nothing is not compared"
    )


def test_regret_is_of_points_that_the_tree_did_not_see() -> None:
    assert p99(tree.dispatcher(Regions(maps.record(80, of=steps)))) <= 1.5
    rng = random.Random(1)
    noise = Regions(maps.record(40, of=lambda p: {"small": rng.choice([1.0, 2.0]), "large": rng.choice([1.0, 2.0])}))
    fitted = tree.fitted(noise.spots, noise.table["features"])
    assert max(part.regret(spot) for part in fitted for spot in part.spots) <= 2.0
    assert p99(tree.dispatcher(noise)) == 2.0, "what cannot be known is not predicted"


def test_a_variant_that_refuses_some_points_is_not_chosen_for_them() -> None:
    def refuses(params: Params) -> dict[str, float]:
        return {"large": 3.0, **({"small": 1.0} if float(params["S"]) <= 512 else {})}

    regions = Regions(maps.record(40, of=refuses))
    for part in tree.fitted(regions.spots, ["S"]):
        assert all(part.variants[0] in spot.times for spot in part.spots)
    assert p99(tree.dispatcher(regions)) <= 3.0, "a refusal costs no more than the next variant"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_header_compiles_and_chooses_as_the_tree(tmp_path: Path) -> None:
    regions = Regions(maps.record(80, of=steps))
    main = "\n".join(
        f"  std::puts(choose_attention(Shape{{{', '.join(str(s.params[n]) for n in 'BHSD')}}}, runs));"
        for s in regions.spots
    )
    struct = "struct Shape { long B, H, S, D; };\nconstexpr auto runs = [](const char*) { return true; };"
    text = f"#include <cstdio>\n{tree.dispatcher(regions)}\n{struct}\nint main() {{\n{main}\n}}\n"
    Path(tmp_path, "main.cpp").write_text(text)
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "-o", "main", "main.cpp"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    parts = tree.fitted(regions.spots, regions.table["features"])
    assert printed == [next(p.variants[0] for p in parts if s in p.spots) for s in regions.spots]
    assert set(printed) == {"small", "large"}


def test_the_first_variant_of_a_part_that_runs_at_a_point_is_its_choice() -> None:
    spot = Regions(maps.record(1)).spots[0]
    second = next(name for name in spot.times if name != spot.best)
    assert tree.Part((), ("absent", second, spot.best), ()).regret(spot) == spot.regret(second)
    assert tree.Part((), ("absent",), ()).regret(spot) == float("inf")


def test_the_last_variant_of_each_part_runs_everywhere() -> None:
    def refuses(params: Params) -> dict[str, float]:
        return {"large": 3.0, **({"small": 1.0} if params["B"] != 1 else {})}

    regions = Regions(maps.record(60, of=refuses))
    assert {tuple(part.variants) for part in tree.fitted(regions.spots, ["S"])} == {("small", "large")}
    source = tree.dispatcher(regions)
    assert 'return runs("small") ? "small" : "large";' in source
    assert p99(source) == 1.0


def test_what_cannot_be_fitted_says_so() -> None:
    with pytest.raises(UsageError, match=r"expected features .*, found \[\]"):
        tree.dispatcher(Regions(maps.record(features=[])))
    with pytest.raises(UsageError, match=r"at least two points of attention, found .* and 1"):
        tree.dispatcher(Regions(maps.record(1)))
    two = tree.dispatcher(Regions(maps.record(2)))
    assert two.count("return") == 1 and "if (" not in two
