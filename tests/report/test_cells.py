"""Facts as cells of a table: units and sources."""

from __future__ import annotations

from dataclasses import replace

from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Fact, Source
from flashcore.report.cells import fact_cell


def test_a_fact_tells_its_source() -> None:
    fact = Fact(CaseSubject(Case("fast", "mission")), "l2_hit", 81.25, "pct", Source.NCU, "two launches")
    cell = fact_cell(fact)
    assert (cell.text, cell.unit) == ("81.2", "%")
    for part in ("81.25 %", "ncu", "lts__t_sector_hit_rate.pct", "fast/mission", "two launches"):
        assert part in cell.title


def test_a_column_headed_by_its_unit_shows_prefixes_alone() -> None:
    many = Fact(CaseSubject(Case("fast", "mission")), "dram_bytes", 5e9, "B", Source.NCU)
    assert fact_cell(many, with_unit=False).unit == fact_cell(many).unit == "GB"
    few = replace(many, value=12.0)
    assert (fact_cell(few, with_unit=False).unit, fact_cell(few).unit) == ("", "B")
