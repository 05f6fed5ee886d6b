"""The table of a machine's roofs."""

from __future__ import annotations

from flashcore.cli.roofs import table
from flashcore.explain.measured_roofs import MeasuredRoof
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject


def test_roofs_stand_by_resource_rates_before_times_and_the_highest_first() -> None:
    case = CaseSubject(Case("v", "s"))
    rows = [
        MeasuredRoof("launch", "dram", case, 2.5, "us"),
        MeasuredRoof("read", "dram", case, 4000.0, "GB/s", 1980.0, 0.00123, 40.0, 15.25, 5000.0),
        MeasuredRoof("copy", "dram", case, 4500.0, "GB/s", library=True),
        MeasuredRoof("barrier", "barrier", case, 1.0, "us"),
    ]
    _, _, first, second, third, last = (line.split("  ") for line in table(rows).splitlines())
    cells = [[cell.strip() for cell in row if cell.strip()] for row in (first, second, third, last)]
    assert cells == [
        ["v/s", "barrier", "1", "µs", *"-" * 6],
        ["v/s", "dram (library)", "4,500", "GB/s", *"-" * 6],
        ["v/s", "dram", "4,000", "GB/s", "15.2", "1,980", "0.0012", "40", "5,000", "80.0"],
        ["v/s", "dram", "2.5", "µs", *"-" * 6],
    ]
