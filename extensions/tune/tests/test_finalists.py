"""The finalists, the winner, and the offered change of the manifest."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from extensions.tune.tests.spaces import GRID as TOY
from flashcore.errors import FlashcoreError
from flashcore.explain.comparison import Change, Comparison, Difference, Side
from flashcore.explain.times import Speedup
from flashcore.model.case import Case
from flashcore.model.causes import MESSAGE
from flashcore.model.record import CaseOutcome, CaseSubject
from flashcore.suites.load import load
from flashcore_tune import finalists
from flashcore_tune.finalists import Shortlist, judged, offer
from flashcore_tune.search import Outcome
from flashcore_tune.space import read
from tests import factory
from tests.conftest import ROOT

SUITE = load(ROOT / "examples" / "tune")
GRID = read(SUITE, "mma")
NAMED = GRID.named(SUITE)
BY_HAND = next(i for i, name in NAMED.items() if name == "mma_keys_by_hand")


def timed(us: float, code: str) -> Outcome:
    return Outcome(times={"mission": us}, code=code)


def test_the_fastest_by_name_is_to_be_beaten_by_the_fastest_that_are_new() -> None:
    base = next(i for i in NAMED if i != BY_HAND)
    outcomes = {base: timed(9, "base"), BY_HAND: timed(5, "hand"), 1: timed(4, "1"), 2: timed(4.5, "2")}
    outcomes |= {3: timed(6, "3"), 4: timed(4.1, "hand"), 5: timed(4.2, "1"), 6: Outcome("check", "wrong")}
    outcomes[7] = replace(timed(0.1, "7"), rejected="check", reason="wrong")
    assert finalists.shortlist(SUITE, GRID, outcomes, 2) == Shortlist("mma_keys_by_hand", [1, 2])
    unnamed = finalists.shortlist(SUITE, GRID, {1: outcomes[1]}, 3)
    assert unnamed == Shortlist("mma_keys", [1]), "none by name: the space's own"


def test_the_first_shape_ranks_the_finalists() -> None:
    several = read(SUITE, "mma", ("mission", "s1024"))
    pairs = ((1, 4.0, 9.0), (2, 5.0, 8.0), (3, 6.0, 1.0))
    outcomes = {i: Outcome(times={"mission": us, "s1024": other}, code=f"c{i}") for i, us, other in pairs}
    assert finalists.shortlist(SUITE, several, outcomes, 2).points == [1, 2]


def final(point: int, low: float, high: float, shape: str = "mission") -> Difference:
    subject, outcome, ratio = (
        CaseSubject(Case(GRID.name(point), shape)),
        judged(low, high),
        Speedup((low + high) / 2, low, high),
    )
    return Difference(subject, outcome, (Change(subject, "isolated_p50", "us", 1.0, 1.0, outcome, "one run", ratio),))


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.02, 1.04, "faster"),
        (1.0, 1.2, "undecided"),
        (0.995, 1.0, "no difference"),
        (0.98, 1.2, "undecided"),
        (0.9, 0.98, "slower"),
    ],
)
def test_an_outcome_holds_for_the_whole_interval(low: float, high: float, outcome: str) -> None:
    assert judged(low, high) == outcome


SAME = [final(i, 0.995, 1.005, "s1024") for i in (1, 2)]


@pytest.mark.parametrize(
    ("finals", "winner"),
    [
        ([final(1, 1.04, 1.06), final(2, 1.09, 1.11), *SAME], 2),
        ([final(1, 1.04, 1.06), final(2, 1.09, 1.11), SAME[0], final(2, 0.9, 0.98, "s1024")], 1),
        ([final(1, 1.04, 1.06), final(1, 0.995, 1.2, "s1024")], 1),
        ([final(2, 1.09, 1.11), final(2, 0.9, 1.1, "s1024")], None),
        ([final(2, 1.0, 1.2), SAME[1]], None),
        ([final(2, 1.09, 1.11), Difference(CaseSubject(Case(GRID.name(2), "s1024")), "failed", reason="wrong")], None),
        ([], None),
    ],
)
def test_a_winner_is_faster_at_the_first_shape_and_slower_at_none(finals: list[Difference], winner: int | None) -> None:
    first = finalists.winner(Comparison(Side("base", "s"), Side("finalists", "s"), finals), "mission")
    assert (first and first.subject) == (winner and CaseSubject(Case(GRID.name(winner), "mission")))


def test_finalists_that_failed_on_any_shape_have_no_speedup() -> None:
    names = [TOY.name(i) for i in range(3)]
    outcomes = [CaseOutcome(n, "small", "bench", "ok") for n in ("base", *names)]
    outcomes.append(CaseOutcome(names[1], "odd", "check", "failed", MESSAGE("it hangs")))
    samples = {(Case(n, "small"), "isolated"): (us,) * 9 for n, us in (("base", 2.0), (names[0], 1.0), (names[1], 1.0))}
    record = replace(factory.record(), outcomes=tuple(outcomes), raw_samples=samples)
    found = finalists.finals(record, TOY, Shortlist("base", [0, 1, 2]), {"small": "isolated"})
    rows = {row.subject.variant: row for row in found.rows}
    lead = rows[names[0]].lead
    assert lead and (lead.ratio, lead.before, lead.after, lead.outcome) == (2.0, 2.0, 1.0, "faster")
    assert rows[names[1]].verdict == "failed: not timed: odd: it hangs"
    assert rows[names[2]].verdict == "failed: not timed: the timing is void"
    wrong = replace(record, outcomes=(*outcomes, CaseOutcome("base", "odd", "check", "failed", MESSAGE("it is wrong"))))
    with pytest.raises(FlashcoreError, match="base: expected a variant that is right, found: odd: it is wrong"):
        finalists.finals(wrong, TOY, Shortlist("base", [0]), {"small": "isolated"})


def test_the_offer_is_a_variant_that_the_manifest_takes(tmp_path: Path) -> None:
    """The diff adds one variant, which loads, has the point's config, and changes nothing else."""
    shutil.copytree(ROOT / "examples" / "tune", tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.toml"):
        file.write_text(file.read_text(encoding="utf-8").replace('"../', f'"{ROOT}/examples/'))
    suite = load(tmp_path)
    index = GRID.index({"STRIPES": 2, "WARPS": 8, "KEYS": 128, "MIN_BLOCKS": 2, "PROGRAMMATIC": 1})
    entrants, winner = Shortlist("mma_keys_by_hand", [index]), final(index, 1.022, 1.04)
    made = offer(suite, read(suite, "mma"), entrants, winner, "mma-1")
    assert all(line.startswith(("+", " ", "-", "@")) for line in made.diff.splitlines())
    assert not [line for line in made.diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    made.write()
    after = load(tmp_path)
    new = after.variants["mma_tuned_1"]
    assert dict(new.config) == GRID.point(index) and new.parent == "mma_keys_by_hand"
    base = suite.variants["mma_keys"]
    assert (new.kind, new.tolerance, new.where, new.roof) == (base.kind, base.tolerance, base.where, base.roof)
    assert {n: v for n, v in after.variants.items() if n != "mma_tuned_1"} == dict(suite.variants)
    assert "study mma-1: 1.031 × as fast as mma_keys_by_hand at mission." in made.file.read_text()
    assert "mma_tuned_2" in offer(after, read(after, "mma"), entrants, winner, "s").diff
