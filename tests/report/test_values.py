"""Values as cells: units, rounding, sources."""

from __future__ import annotations

import pytest

from flashcore.model.record import Fact, Source, Subject
from flashcore.report.values import fact_cell, quantity, significant


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "1", ("0", "")),
        (1234567, "1", ("1.235", "M")),
        (96, "1", ("96", "")),
        (99_840, "B", ("99,840", "B")),
        (2_097_152, "B", ("2.097", "MB")),
        (8812, "ns", ("8.812", "µs")),
        (2870.4, "us", ("2,870", "µs")),
        (0.0004, "pct", ("4.0e-04", "%")),
        (0.004, "pct", ("0.0040", "%")),
        (1.97e9, "Hz", ("1,970", "MHz")),
        (3.2e-5, "1", ("3.20e-05", "")),
        (True, "1", ("yes", "")),
        ("registers", "text", ("registers", "")),
    ],
)
def test_quantities(value: float | int | str, unit: str, shown: tuple[str, str]) -> None:
    assert quantity(value, unit) == shown


def test_rounding_never_makes_a_zero() -> None:
    for exponent in range(-12, 12):
        assert float(significant(3 * 10.0**exponent).replace(",", "")) > 0


def test_a_fact_tells_its_source() -> None:
    fact = Fact(Subject("fast", shape="mission"), "l2_hit", 81.25, "pct", Source.NCU, "two launches")
    cell = fact_cell(fact)
    assert (cell.text, cell.unit) == ("81.2", "%")
    for part in ("81.25 pct", "ncu", "lts__t_sector_hit_rate.pct", "fast/mission", "two launches"):
        assert part in cell.title
