"""The output of a comparison of two revisions, and its exit code."""

from __future__ import annotations

from typing import Any

import pytest

from flashcore.errors import Exit
from flashcore.features.regress import against
from flashcore.features.regress.against import Options
from flashcore.features.regress.comparison import Comparison, Row, as_text
from flashcore.measure.bench.time_pairs import Lost, Times, Timings
from flashcore.model.decide import Process


def comparison(*rows: Row, obstacle: str = "") -> Comparison:
    return Comparison("toy", "main", "0" * 40, "NVIDIA H200", "13.0.88", 0.001, 0.01, 100, rows, obstacle=obstacle)


@pytest.mark.parametrize(
    ("fate_codes", "obstacle", "code"),
    [
        ([], "", Exit.OK),
        (["same code", "no difference", "too small to matter", "faster", "unsupported"], "", Exit.OK),
        (["nothing to compare with"], "", Exit.OK),
        (["no difference", "undecided"], "", Exit.UNMEASURED),
        (["slower", "undecided"], "", Exit.FAILED),
        (["failed"], "no GPU", Exit.FAILED),
        (["undecided"], "no GPU", Exit.INCAPABLE),
    ],
)
def test_the_exit_code(fate_codes: list[Any], obstacle: str, code: Exit) -> None:
    rows = [Row(f"v{i}/s", fate) for i, fate in enumerate(fate_codes)]
    found = comparison(*rows, obstacle=obstacle)
    assert found.exit_code == code
    assert f"(exit {int(code)})" in as_text(found)


def test_the_table_tells_the_spread_of_no_change() -> None:
    processes = (Process(0.02, 0.001), Process(0.021, -0.004))
    slow = Row("slow/s", "slower", "", 10.0, 10.2, 0.02, 0.004, processes)
    calm = slow._replace(case="calm/s", fate="no difference", processes=(Process(0.0, 0.002),))
    text = as_text(comparison(slow, calm, Row("old/s", "same code")))
    row = next(line for line in text.splitlines() if line.startswith("slow/s"))
    assert row.split() == ["slow/s", "10.000", "10.200", "+2.00", "0.40", "SLOWER"]
    assert "compared with itself 3 times, the largest difference 0.40 % (slow/s)" in text
    assert "1 slower, 1 no difference, 1 same code" in text


def test_of_many_cases_six_are_named() -> None:
    text = as_text(comparison(*(Row(f"v{i}/s", "same code") for i in range(8)), Row("x/s", "undecided")))
    assert "not timed: v0/s, v1/s, v2/s, v3/s, v4/s, v5/s and 2 more\n" in text
    assert "undecided: no reason given: x/s\n" in text


def test_a_build_that_fails_while_it_is_timed() -> None:
    times = [Times((10.0,) * 5, (10.0,) * 5, (10.0,) * 5)] * 4
    lost = {"a/s": Lost("after", "hang?"), "b/s": Lost("again", "hang?"), "c/s": Lost("", "no memory")}
    rows = against._decided(Timings({"d/s": times}, lost), Options("main"))
    assert {name: row.fate for name, row in rows.items()} == {
        "a/s": "failed", "b/s": "undecided", "c/s": "undecided", "d/s": "no difference"
    }  # fmt: skip
    assert rows["b/s"].reason == "main could not be timed: hang?"
    assert rows["d/s"].before_us == pytest.approx(10.0)
    assert rows["d/s"].change == 0
