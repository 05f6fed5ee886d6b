"""Mutants of our own code: where they are made, and how they are counted."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from benchmarks import mutation, raw
from tests.conftest import ROOT

SOURCE = """from __future__ import annotations
@cache
def f(x: int | None, *, y: str = "a") -> int | None:
    for i in [1]:
        if x < 2 and y:
            return i + x
    return None
Value = int | str
if TYPE_CHECKING: pass
WARM: int = -(3 << 2)
SCALES = {"m": 2}
LEAST, MOST = 4, 5
"""


needs_cosmic_ray = pytest.mark.skipif(find_spec("cosmic_ray") is None, reason="package: cosmic-ray is not installed")


@needs_cosmic_ray
def test_places_are_in_what_runs_alone() -> None:
    result = mutation.places(SOURCE)
    assert {line for line, _ in result} - {3} == {4, 5, 6, 10, 11, 12}  # no decorator, annotation, alias of types
    assert {name for ways in result.values() for name, _, _ in ways} >= {
        "core/NumberReplacer",
        "core/ZeroIterationForLoop",
    }


@needs_cosmic_ray
def test_a_sample_is_the_same_for_a_seed() -> None:
    first, again, other = (mutation.drawn({"m": SOURCE}, 5, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(m.text != SOURCE and m.before != m.after for m in first)


@needs_cosmic_ray
def test_only_what_compiles_is_drawn_and_a_module_number_is_a_constant() -> None:
    mutants = mutation.drawn({"m": SOURCE}, 99, 1)
    assert {m.line for m in mutants if m.constant} == {10, 12}
    assert {m.line for m in mutants} == {4, 5, 6, 10, 11, 12}
    assert all(compile(m.text, "m", "exec") for m in mutants)


@needs_cosmic_ray
def test_a_line_that_is_not_the_only_one_comes_with_those_above_it() -> None:
    text = """for x in a:
    if x:
        continue
    if not x:
        continue
    y = x + 1
"""
    results = {m.before for m in mutation.drawn({"m": text}, 99, 1) if m.operator == "ReplaceContinueWithBreak"}
    assert results <= {"if x: continue", "if not x: continue"} and results
    for m in mutation.drawn({"m": text}, 99, 1):
        row = {"module": m.module, "operator": m.operator, "before": m.before, "after": m.after}
        assert mutation.found_again(row, text) == m
        moved = mutation.found_again(row, f"z = 0\n\n{text}")
        assert moved is not None and (moved.name, moved.line) == (m.name, m.line + 2)
        assert mutation.found_again({**row, "before": "gone", "after": "too"}, text) is None


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("gate/judge", "gate/test_judge.py"),
        ("gate/expand", "gate/test_judge.py"),
        ("gate/formats", "gate/test_formats.py"),
        ("features/formats/sarif", "features/formats/test_formats.py"),
        ("report/__init__", "report/test_report.py"),
        ("model/catalogue", "stages/profile/test_ncu_facts.py"),
    ],
)
def test_a_modules_tests_are_those_of_its_name_or_folder(module: str, first: str) -> None:
    assert mutation.tests_of(module)[0] == f"tests/{first}"


def test_every_module_is_drawn_from_and_has_tests() -> None:
    modules = mutation.modules()
    assert {"api", "cli/main", "features/formats/sarif", "runner/process"} <= {*modules}
    assert {*mutation.TESTS} <= {*modules}
    files = {test for module in modules for test in mutation.tests_of(module)}
    assert all((ROOT / file).is_file() for file in files)


def test_the_share_leaves_out_what_nobody_can_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [
        {"module": "m", "line": 1, "operator": "o", "before": str(i), "after": "x", "outcome": "survived", "seconds": 1}
        for i in range(3)
    ]
    rows[0]["outcome"] = "killed"
    monkeypatch.setattr(mutation, "reasons", lambda: {"m: o: 1 → x": "equivalent: y", "m: o: 2 → x": "text alone"})
    constant = {**rows[0], "outcome": "survived", "constant": True}
    results = {"machine": "here", "mutants": [*rows, {**rows[0], "outcome": "gone"}, constant]}
    assert mutation.share(results) == 0.5
    assert "m:1  2  →  x: text alone" in mutation.table(results)
    assert any(
        "1 of 4 killed, 1 equivalent, 1 of lines that are gone: 50.0 % of the others (95 % interval 9 to 91)" in line
        for line in mutation.table(results)
    )
    assert "constants: 0 of 1 killed" in mutation.table(results)


def test_every_survivor_that_is_recorded_has_a_reason_and_every_reason_a_survivor() -> None:
    recorded = [f for f in raw.recorded(ROOT / "benchmarks" / "results") if f.name.startswith("mutation")]
    rows = [r for file in recorded for r in raw.read(file, "mutation")["mutants"] if r["outcome"] == "survived"]
    assert [r for r in rows if not mutation.why(r)] == []
    assert {mutation._key(r) for r in rows} == set(mutation.reasons())
