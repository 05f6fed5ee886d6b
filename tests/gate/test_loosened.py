"""Limits that are looser than the base's, one kind per test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from flashcore.gate.baseline import Baseline, LineKey
from flashcore.gate.loosened import Loosened, everything
from flashcore.model.suite import Decision, GatePolicy, GateRule, PythonCallable, RecordedCubins, Suite
from tests import factory

TODAY = date(2026, 6, 1)
LIMIT = factory.budget("registers", "limit", maximum=128.0)
LOW = factory.budget("theoretical_occupancy", "low", minimum=50.0, maximum=None)
VARIANTS = [factory.variant("slow"), factory.variant("fast"), factory.reference()]
WAIVED = factory.waiver("limit", 140.0, variants=("fast",), expires="2026-09-01")
RULE = GateRule(("sass_hmma",), "fail", 0.0)
OLD = factory.suite(VARIANTS, budgets=[LIMIT, LOW], waivers=[WAIVED])
ARCH, SHAPE = OLD.archs[0], next(iter(OLD.shapes))
LINE = LineKey("fast", ARCH, "kernel", "*", "registers")
LINES = {LINE: 40.0, LINE._replace(fact="sass_hmma"): 8.0, LINE._replace(variant="slow"): 32.0}


def baseline(values: Mapping[LineKey, float]) -> Baseline:
    return Baseline(OLD.name, {"nvcc": "13.0.88"}, values)


def keys(new: Suite, old: Suite = OLD) -> set[str]:
    both = baseline(LINES)
    return {change.key for change in everything((old, both), (new, both), TODAY)}


def test_the_same_is_not_looser() -> None:
    assert keys(OLD) == set()


@pytest.mark.parametrize(
    ("index", "changes", "looser"),
    [
        (0, {"maximum": 1068.0}, True),
        (0, {"maximum": None, "minimum": 1.0}, True),
        (0, {"severity": "goal"}, True),
        (0, {"fact": "smem"}, True),
        (0, {"device": "H200"}, True),
        (0, {"variants": ("slow",)}, True),
        (0, {"archs": (ARCH,)}, True),
        (0, {"shapes": (SHAPE,)}, True),
        (0, {"kernels": ("a*",)}, True),
        (0, {"kernels": ("*", "!a*")}, True),
        (0, {"name": "another"}, True),
        (1, {"minimum": 40.0}, True),
        (1, {"minimum": 60.0}, False),
        (0, {"maximum": 64.0}, False),
        (0, {"variants": ("slow", "f*")}, False),
        (0, {"source": "another"}, False),
    ],
)
def test_a_budget(index: int, changes: dict[str, Any], looser: bool) -> None:
    budgets = list(OLD.budgets)
    budgets[index] = replace(budgets[index], **changes)
    new = replace(OLD, budgets=tuple(budgets))
    assert keys(new) == ({f"budget:{OLD.budgets[index].name}"} if looser else set())


@pytest.mark.parametrize(
    ("before", "after", "looser"),
    [
        (("a*", "b*"), ("a*", "b*", "c*"), False),
        (("a*", "b*"), ("a*",), True),
        (("a*", "!ab*"), ("a*", "!ab*", "c*"), False),
        (("a*", "!ab*"), ("a*",), False),
        (("a*",), ("a*", "!ab*"), True),
    ],
)
def test_kernels_of_a_budget(before: tuple[str, ...], after: tuple[str, ...], looser: bool) -> None:
    old, new = (replace(OLD, budgets=(replace(LIMIT, kernels=kernels), LOW)) for kernels in (before, after))
    assert keys(new, old) == ({"budget:limit"} if looser else set())


DECISION = Decision(("mma",), ("local",), mark="main loop")


@pytest.mark.parametrize(
    ("after", "looser"),
    [
        (DECISION, False),
        (replace(DECISION, must=("mma", "ldmatrix"), must_not=("call", "local")), False),
        (replace(DECISION, must=()), True),
        (replace(DECISION, must_not=("call",)), True),
        (replace(DECISION, must=("2 mma",)), True),  # no comparison of numbers
        (replace(DECISION, mark="another"), True),
        (replace(DECISION, mark="", function="main loop"), True),
        (None, True),
    ],
)
def test_a_decision(after: Decision | None, looser: bool) -> None:
    old, new = (replace(OLD, budgets=(replace(LIMIT, decision=d), LOW)) for d in (DECISION, after))
    assert keys(new, old) == ({"budget:limit"} if looser else set())


def test_a_budget_of_removed_variants_is_listed_and_fine() -> None:
    old = replace(OLD, budgets=(replace(LIMIT, variants=("fast",)),), waivers=())
    new = replace(old, budgets=(), variants={n: v for n, v in old.variants.items() if n != "fast"})
    changes = everything((old, baseline(LINES)), (new, baseline(LINES)), TODAY)
    assert {(c.key, c.gone) for c in changes} == {("variant:fast", True), ("budget:limit", True)}
    new = replace(new, variants={**new.variants, "renamed": factory.variant("renamed")})
    changes = everything((old, None), (new, None), TODAY)
    assert [(c.key, c.gone, c.text.endswith("; renamed added")) for c in changes] == [
        ("variant:fast", False, True), ("budget:limit", False, True)
    ], "a variant may be renamed to lose its limits"  # fmt: skip
    new = replace(old, budgets=())
    assert everything((old, None), (new, None), TODAY) == [Loosened("budget", "limit", "removed: registers ≤ 128")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kind": factory.reference().kind}, "now a reference, which has no budgets"),
        ({"where": replace(OLD.variants["fast"].where, archs=(ARCH,))}, "no longer on "),
        ({"where": replace(OLD.variants["fast"].where, shapes=(SHAPE,))}, "no longer on "),
        ({"tolerance": "loose"}, "tolerance "),
        ({"kind": RecordedCubins("cubins", "fast.py:fast")}, "kind.type cuda_source → recorded_cubins"),
        ({"roof": "fp32"}, "roof "),
    ],
)
def test_a_variant_that_is_judged_less(changes: dict[str, Any], text: str) -> None:
    new = replace(OLD, variants={**OLD.variants, "fast": replace(OLD.variants["fast"], **changes)})
    (change,) = everything((OLD, None), (new, None), TODAY)
    assert change.key == "variant:fast" and change.text.startswith(text) and not change.gone


def test_a_weaker_standard_of_comparison() -> None:
    reference, problem = OLD.variants["cudnn"], next(iter(OLD.problems.values()))
    baseline, slower = OLD.variants[OLD.baseline], PythonCallable("peers.py:slower")
    for changes, key in (
        ({"variants": {n: v for n, v in OLD.variants.items() if n != "cudnn"}}, "variant:cudnn"),
        ({"variants": {**OLD.variants, "cudnn": replace(reference, kind=slower)}}, "variant:cudnn"),
        ({"baseline": "fast"}, f"suite:{OLD.name}"),
        ({"variants": {**OLD.variants, baseline.name: replace(baseline, config={"A": 1})}}, f"variant:{baseline.name}"),
        ({"problems": {problem.name: replace(problem, seeds=problem.seeds[1:])}}, f"suite:{OLD.name}"),
        ({"problems": {problem.name: replace(problem, arguments=())}}, f"suite:{OLD.name}"),
    ):  # fmt: skip
        assert keys(replace(OLD, **changes)) == {key}
    renamed = replace(reference, technique="the library's kernel")
    assert keys(replace(OLD, variants={**OLD.variants, "cudnn": renamed})) == set()


@pytest.mark.parametrize(
    ("now", "looser"),
    [({"rows": {"limit": 2}}, False), ({"rows": {"limit": 1}}, True), ({}, True), ({"rows": {}, "more": {}}, True)],
)
def test_a_table_of_an_extension(now: dict[str, dict[str, float]], looser: bool) -> None:
    old, new = (replace(OLD, tables={"map": table}) for table in ({"rows": {"limit": 2}}, now))
    assert [change.key for change in everything((old, None), (new, None), TODAY)] == ["map:rows"] * looser
    assert everything((old, None), (OLD, None), TODAY)  # no table is left


@pytest.mark.parametrize("changes", [{"params": {"N": 1}}, {"stages": ()}, {"rank_by": "cold"}, None])
def test_a_shape(changes: dict[str, Any] | None) -> None:
    shapes = dict(OLD.shapes)
    shape = shapes.pop(SHAPE)
    if changes is not None:
        shapes[SHAPE] = replace(shape, **changes)
    assert keys(replace(OLD, shapes=shapes)) == {f"shape:{SHAPE}"}


@pytest.mark.parametrize(
    ("changes", "looser"),
    [
        ({"accepted": 150.0}, True),
        ({"accepted": 130.0}, False),
        ({"expires": None}, True),
        ({"expires": "2027-01-01"}, True),
        ({"expires": "2026-07-01"}, False),
        ({"variants": ("*",)}, True),
        ({"archs": (ARCH,)}, False),
        ({"budget": "correct", "accepted": 1.0}, True),
        ({"budget": "baseline_registers"}, True),
        ({"reason": "another"}, False),
    ],
)
def test_a_waiver(changes: dict[str, Any], looser: bool) -> None:
    waiver = replace(WAIVED, **changes)
    assert keys(replace(OLD, waivers=(waiver,))) == ({f"waiver:{waiver.budget}"} if looser else set())
    assert keys(replace(OLD, waivers=())) == set()


def test_a_waiver_of_a_new_budget_loosens_nothing() -> None:
    new = replace(OLD, budgets=(*OLD.budgets, replace(LIMIT, name="new")), waivers=(replace(WAIVED, budget="new"),))
    assert keys(new) == set()


@pytest.mark.parametrize(
    ("before", "after", "looser"),
    [
        ([], [GateRule(("*",), "ignore", reason="all of it")], {"rule:registers", "rule:sass_hmma"}),
        ([], [GateRule(("registers",), "show", reason="x")], {"rule:registers"}),
        ([], [GateRule(("registers",), "fail", 0.5, reason="x", variants=("nothing",))], set()),
        ([RULE], [], {"rule:sass_hmma"}),
        ([RULE], [RULE, GateRule(("sass_hmma",), "fail", 0.25)], {"rule:sass_hmma"}),
        ([], [RULE], set()),
        (
            [GateRule(("registers",), "show", reason="x", expires="2026-07-01")],
            [GateRule(("registers",), "show", reason="x", expires="2026-08-01")],
            {"rule:registers"},
        ),
    ],
)
def test_rules(before: list[GateRule], after: list[GateRule], looser: set[str]) -> None:
    old, new = (replace(OLD, gate=GatePolicy(None, tuple(rules))) for rules in (before, after))
    assert keys(new, old) == looser


@pytest.mark.parametrize(
    ("values", "looser"),
    [
        ({}, {"baseline:*"}),
        (None, {"baseline:*"}),
        ({k: v for k, v in LINES.items() if k != LINE}, {"baseline:fast"}),
        ({**LINES, LINE: 41.0}, {"baseline:fast"}),
        ({**LINES, LINE: 39.0}, set()),
        ({**LINES, LINE._replace(fact="sass_hmma"): 7.0}, {"baseline:fast"}),
        ({k._replace(kernel="renamed"): v for k, v in LINES.items()}, set()),
        ({**{k: v for k, v in LINES.items() if k != LINE}, LINE._replace(shape=SHAPE): 40.0}, {"baseline:fast"}),
        (
            {**{k: v for k, v in LINES.items() if k != LINE}, **{LINE._replace(shape=s): 40.0 for s in OLD.shapes}},
            set(),
        ),
    ],
)
def test_lines_of_the_baseline(values: dict[LineKey, float] | None, looser: set[str]) -> None:
    after = None if values is None else baseline(values)
    assert {c.key for c in everything((OLD, baseline(LINES)), (OLD, after), TODAY)} == looser
    assert everything((OLD, None), (OLD, after), TODAY) == [], "the base has none"
