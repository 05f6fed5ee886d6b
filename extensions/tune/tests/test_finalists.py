"""The finalists, the winner, and the offered change of the manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.errors import UsageError
from flashcore.model.decide import Decision, Outcome
from flashcore.suites.load import load
from flashcore_tune import finalists, grid
from flashcore_tune.finalists import Final, Shortlist, offer
from flashcore_tune.study import Result
from tests.conftest import ROOT

SUITE = load(ROOT / "examples" / "tune")
GRID = grid.of_suite(SUITE, "mma")
NAMED = grid.named_points(SUITE, GRID)
BY_HAND = next(i for i, name in NAMED.items() if name == "mma_keys_by_hand")


def timed(index: int, us: float, code: str = "") -> Result:
    return Result(index, times={"mission": us}, code=code or f"c{index}")


def test_the_fastest_by_name_is_to_be_beaten_by_the_fastest_that_are_new() -> None:
    base = next(i for i in NAMED if i != BY_HAND)
    measured = ((base, 9), (BY_HAND, 5, "hand"), (1, 4), (2, 4.5), (3, 6), (4, 4.1, "hand"))
    results = {index: timed(index, *more) for index, *more in measured}
    results[5] = replace(timed(5, 3.9), twin=1)
    results[6] = Result(6, "check", "wrong")
    assert finalists.shortlist(SUITE, GRID, results, 2) == Shortlist("mma_keys_by_hand", [1, 2])
    unnamed = finalists.shortlist(SUITE, GRID, {1: results[1]}, 3)
    assert unnamed == Shortlist("mma_keys", [1]), "none by name: the space's own"


def test_the_first_shape_ranks_the_finalists() -> None:
    several = grid.of_suite(SUITE, "mma", ("mission", "s1024"))
    results = {
        i: Result(i, times={"mission": us, "s1024": other}, code=f"c{i}")
        for i, us, other in ((1, 4.0, 9.0), (2, 5.0, 8.0), (3, 6.0, 1.0))
    }
    assert finalists.shortlist(SUITE, several, results, 2).candidates == [1, 2]


def final(index: int, outcome: Outcome, change: float, shape: str = "mission") -> Final:
    return Final(index, shape, "base", 5.0, 5.0 * (1 + change), Decision(outcome, change, 0.005))


SAME = [final(i, "no difference", 0.0, "s1024") for i in (1, 2)]


@pytest.mark.parametrize(
    ("finals", "winner"),
    [
        ([final(1, "faster", -0.05), final(2, "faster", -0.1), *SAME], 2),
        ([final(2, "faster", -0.1), final(2, "slower", 0.02, "s1024")], None),
        ([final(2, "faster", -0.1), final(2, "undecided", 0.0, "s1024")], None),
        ([final(2, "no difference", -0.1), SAME[1]], None),
        ([Final(2, "mission", "base", reason="wrong"), SAME[1]], None),
        ([], None),
    ],
)
def test_a_winner_is_faster_at_the_first_shape_and_slower_at_none(finals: list[Final], winner: int | None) -> None:
    first = finalists.winner(finals, ("mission", "s1024"))
    assert (first and (first.index, first.shape)) == (winner and (winner, "mission"))


def test_finalists_are_kept_with_the_study(tmp_path: Path) -> None:
    decision = Decision("faster", -0.05, 0.01)
    finals = [Final(1, "mission", "base", 5.0, 4.75, decision), Final(2, "mission", "base", reason="it hangs")]
    assert finalists.load(tmp_path) == []
    finalists.save(finals, tmp_path)
    assert finalists.load(tmp_path) == finals and finalists.load(tmp_path / "results.jsonl") == []
    (tmp_path / finalists.FILE).write_text('[{"index": 1}]')
    with pytest.raises(UsageError, match="expected a study's finalists"):
        finalists.load(tmp_path)


def test_the_offer_is_a_variant_that_the_manifest_takes(tmp_path: Path) -> None:
    """The diff adds one variant, which loads, has the point's config, and changes nothing else."""
    for name in (
        "suite.toml",
        "product.py",
        "product.cu",
        "softmax.cu",
        "warpgroups.toml",
        "clusters.toml",
        "space.toml",
    ):
        text = (ROOT / "examples" / "tune" / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace('"../', f'"{ROOT}/examples/'))
    suite = load(tmp_path)
    index = GRID.index({"STRIPES": 2, "WARPS": 8, "KEYS": 128, "MIN_BLOCKS": 2, "PROGRAMMATIC": 1})
    winner = Final(index, "mission", "mma_keys_by_hand", 5.0, 4.85, Decision("faster", -0.03, 0.01))
    made = offer(suite, grid.of_suite(suite, "mma"), winner, "mma-1")
    assert all(line.startswith(("+", " ", "-", "@")) for line in made.diff.splitlines())
    assert not [line for line in made.diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    made.write()
    after = load(tmp_path)
    new = after.variants["mma_tuned_1"]
    assert dict(new.config) == GRID.point(index) and new.parent == "mma_keys_by_hand"
    base = suite.variants["mma_keys"]
    assert (new.kind, new.tolerance, new.where, new.roof) == (base.kind, base.tolerance, base.where, base.roof)
    assert {n: v for n, v in after.variants.items() if n != "mma_tuned_1"} == dict(suite.variants)
    assert "study mma-1: 3.0 % faster than mma_keys_by_hand at mission." in made.file.read_text()
    assert "mma_tuned_2" in offer(after, grid.of_suite(after, "mma"), winner, "s").diff
