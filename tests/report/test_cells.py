"""Facts as cells of a table: units and sources."""

from __future__ import annotations

from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Fact, Source
from flashcore.report.cells import fact_cell


def test_a_fact_tells_its_source() -> None:
    fact = Fact(CaseSubject(Case("fast", "mission")), "l2_hit", 81.25, "pct", Source.NCU, "two launches")
    cell = fact_cell(fact)
    assert (cell.text, cell.unit) == ("81.2", "%")
    for part in ("81.25 %", "ncu", "lts__t_sector_hit_rate.pct", "fast/mission", "two launches"):
        assert part in cell.title
