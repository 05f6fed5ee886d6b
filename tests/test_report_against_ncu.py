"""The pages of an imported report, compared with NVIDIA's reader for the same launch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flashcore.features.compare import page as compare_page
from flashcore.features.reports import assemble
from tests.support.judged import book_of
from tests.support.late import needs
from tests.support.ncu_reports import read_by_itself
from tests.support.pages import Page, render

pytestmark = [needs("ncu_report"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

#: Variant → its only launch in the report.
LAUNCHES = {"ns_strided_float": 3, "ns_strided_double": 4, "spilly_96": 5}
#: What a page shows → the metrics that it is the sum of, and how many of their unit it is shown in.
SHOWN = {
    "ncu_duration": (("gpu__time_duration.sum",), "µs", 1e3),
    "dram_bytes": (("dram__bytes_read.sum", "dram__bytes_write.sum"), "B", 1),
    "achieved_occupancy": (("sm__warps_active.avg.pct_of_peak_sustained_active",), "%", 1),
    "ncu_registers": (("launch__registers_per_thread",), "", 1),
    "instructions": (("smsp__inst_executed.sum",), "", 1),
    "l2_hit": (("lts__t_sector_hit_rate.pct",), "%", 1),
}
PREFIXES = {"": 1, "M": 1e6, "G": 1e9}


def figure(text: str, unit: str) -> float:
    """The number of a cell in ``unit``: ``18.43 MB``."""
    number, _, shown = text.partition(" ")
    assert shown.endswith(unit), text
    return float(number.replace(",", "")) * PREFIXES[shown.removesuffix(unit)]


@pytest.mark.parametrize("variant", LAUNCHES)
def test_the_figures_of_a_launch_are_the_readers_within_a_hundredth(
    variant: str, sample_report: Any, sample_reports: Path, tmp_path: Path
) -> None:
    record = assemble.record_of("20260101T000000Z-0000", [sample_report("app_full")])
    page = Page(render(record, tmp_path / "r")[f"variant/{variant}.html"])
    launch = list(read_by_itself(sample_reports / "app_full.ncu-rep"))[LAUNCHES[variant]]
    other = dataclasses.replace(record, id="20260102T000000Z-0000")
    data = compare_page.View(book_of(record, other=other)).data
    names = [fact for fact, *_ in data["facts"]]
    place = next(str(i) for i, side in enumerate(data["sides"]) if side[0] == variant)
    (case,) = (s["cases"][place] for s in data["shapes"].values() if place in s["cases"])
    for fact, (metrics, unit, scale) in SHOWN.items():
        wanted = sum(launch[m][0] for m in metrics)
        assert wanted > 0
        (shown,) = (row[1][2] for row in page.rows if len(row) == 2 and row[0][2] == fact)
        assert figure(shown, unit) == pytest.approx(wanted / scale, rel=0.01), fact
        if fact in names:
            assert figure(case["c"][names.index(fact)], unit) == pytest.approx(wanted / scale, rel=0.01), fact
