"""The search benchmark: its figures from made-up searches; our samplers and Kernel Tuner on a tiny recorded space."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from extensions.tune.benchmarks import search
from extensions.tune.tests.spaces import GRID, OUTCOMES, SPACE
from flashcore.errors import UsageError
from flashcore_tune.search import Outcome

OPTIONS = argparse.Namespace(seeds=2, gp_seeds=1)


def recorded(folder: Path, outcomes: Mapping[int, Outcome]) -> argparse.Namespace:
    lines: list[dict[str, Any]] = [{"space": dataclasses.asdict(SPACE), "constants": {}, "gpu": None}]
    for index, o in outcomes.items():
        broken = dict.fromkeys(o.missed, 0.1)
        one = {"fell": o.rejected, "reason": o.reason, "times": o.times, "facts": o.facts, "broken": broken}
        lines.append({"index": index, **one, "code": o.code})
    (folder / "toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return argparse.Namespace(recorded=str(folder), **vars(OPTIONS))


def made(requested: dict[str, list[list[int]]]) -> dict[str, Any]:
    """Ten points; point i takes 100 + i us, 5 and 6 cannot be launched."""
    times = {i: 100.0 + i for i in range(10) if i not in (5, 6)}
    return {"spaces": {"toy": {"points": 20, "feasible": 30, "gpu": None, "shape": "s", "statically_infeasible": 12,
            "times": times, "runs": [*times], "asked": requested, "seconds": dict.fromkeys(requested, 0.1),
            "rejected": dict.fromkeys(("build", "static", "check", "bench"), 0)}}}  # fmt: skip


def test_what_is_counted_is_what_comes_to_a_gpu() -> None:
    """Three measurements are a tenth."""
    result = made({"tpe": [[5, 9, 8, 7, 3, 0]], "kt mls": [[5, 9, 8, 7, 3, 0]], "random": [[9, 9, 8, 0]]})
    rows = search.figures(result)["toy"]
    assert list(rows["tpe"][:2]) == [1.07, 1.08], "5 does not count; of all asked for, the first three"
    assert rows["kt mls"] == rows["tpe"]
    assert rows["tpe"][2] == float("inf") and rows["tpe"][3] == 0.0, "0 came too late"
    text = "\n".join(search.table(result))
    assert "our best (tpe): within 2 % after 10 %, median: 0 of 1; not behind Kernel Tuner's best: 1 of 1" in text
    assert "ahead of random points: 1 of 1" in text


def test_figures_are_medians_over_seeds() -> None:
    rows = search.figures(made({"nsga2": [[2], [0, 9], [9, 7]], "random": [[5, 6]]}))["toy"]
    assert rows["nsga2"][0] == 1.02 and rows["nsga2"][2] == 1
    assert rows["nsga2"][3] == pytest.approx(2 / 3)
    assert rows["random"][0] == rows["random"][1] == float("inf")


def test_both_sides_search_the_same_space(tmp_path: Path) -> None:
    options = recorded(tmp_path, OUTCOMES)
    options.who = ["random", "nsga2"]
    try:
        import kernel_tuner  # noqa: F401
    except ModuleNotFoundError:
        pass
    else:
        options.who.append("kt random_sample")
    result = search.measure(options)["spaces"]["toy"]
    for requested in result["asked"].values():
        assert len(requested) == 2
        for one in requested:
            assert len(one) > 0 and len(set(one)) == len(one) and set(one) <= set(GRID.feasible)


def test_a_space_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    options = recorded(tmp_path, dict([*OUTCOMES.items()][1:]))
    options.who = ["random"]
    with pytest.raises(UsageError, match="1 missing"):
        search.measure(options)
