"""The roofline figure: a mark stands at its facts, the faster is the higher, the page embeds what Python returns."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore import roofline_figure
from flashcore.errors import UsageError
from flashcore.explain.roofline import LEVELS
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Facts, Record, Roof
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, published_run
from tests.marks import embedded, labels, marks
from tests.support.judged import rendered
from tests.support.pages import TODAY, full

PUBLISHED = sorted(path.name.partition(".")[0] for path in (ROOT / "profiles").glob("*.run.zip"))


def drawn(record: Record, shape: str = "mission", before: Record | None = None) -> dict[str, Any]:
    return roofline_figure.of_record(record, shape, before).figure()


def of_every_row(record: Record) -> list[tuple[str, dict[str, Any]]]:
    """The figure of each row of shapes with a point."""
    rows = record.suite.rows(record.suite.shapes.values())
    charts = ((row[0].name, roofline_figure.of_record(record, row[0].name)) for row in rows)
    return [(name, chart.figure()) for name, chart in charts if chart.points]


@pytest.mark.slow
@pytest.mark.parametrize("run", PUBLISHED)
def test_every_mark_stands_at_its_facts_and_the_faster_is_the_higher(run: str) -> None:
    record = store.read(published_run(run))
    number = record.facts.number
    for shape, figure in of_every_row(record):
        for m in marks(figure):
            subject = CaseSubject(Case(m["variant"], m["shape"]), kernel=m["kernel"])
            flop, time = number("formula_flop", subject), number(record.suite.shapes[m["shape"]].time, subject)
            if m["FLOPs by"] == "hardware" or not time:
                time = (number("ncu_duration", subject) or math.nan) / 1e3
            if m["FLOPs by"] == "hardware":
                flop = (number("tensor_flop", subject) or 0) + (number("cuda_core_flop", subject) or 0)
            amount = number(f"{m['level']}_bytes", subject) if number("ncu_duration", subject) else None
            amount = amount or number("formula_l2_bytes" if m["level"] == "l2" else "formula_bytes", subject)
            amount = amount or number("formula_bytes", subject)
            assert flop and amount, (shape, m)
            assert m["x"] == pytest.approx(flop / amount) and m["y"] == pytest.approx(flop / time / 1e6), (shape, m)
        # The time that ranks: of one computation, the winner is above each case that it beats.
        useful = {m["variant"]: m for m in marks(figure) if m["FLOPs by"] == "formula" and m["kernel"] is None}
        by_time = sorted(useful.values(), key=lambda m: m["time µs"])
        assert [m["y"] for m in by_time] == sorted((m["y"] for m in by_time), reverse=True), shape
        told = labels(figure)
        assert not {"winner", "fastest variant"} <= set(told.values())
        for name in (name for name, title in told.items() if title == "winner" and name in useful):
            assert useful[name]["y"] == max(m["y"] for m in useful.values()), shape


def test_padding_lifts_no_mark_and_is_told() -> None:
    """A kernel that does four times the useful FLOPs in twice the time is below, not above."""
    padded = [factory.fact("tensor_flop", 4 * 4 * 8 * 512**2 * 64.0, "slow", shape="mission")]
    figure = drawn(factory.record(facts=padded))
    ours = {(m["variant"], m["FLOPs by"]): m for m in marks(figure) if m["kernel"] is None and m["level"] == "l2"}
    slow = ours["slow", "formula"]
    assert slow["y"] < ours["fast", "formula"]["y"]
    assert slow["counted over useful FLOPs"] > 3.9
    (text,) = (t for trace in figure["data"] if trace.get("meta") == ["formula", "l2", True]
               for t in trace["text"] if "<b>slow</b>" in t)  # fmt: skip
    assert "× the useful FLOPs" in text


def test_the_chart_opens_with_useful_flops_at_the_level_nearest_its_roof_and_offers_the_others() -> None:
    figure = drawn(full())
    (menu,) = figure["layout"]["updatemenus"]
    names = [button["label"] for button in menu["buttons"]]
    assert {n.partition(",")[0] for n in names} == {"useful FLOPs", "FLOPs by counters"}
    assert {n.rpartition(" of ")[2] for n in names} == {"DRAM", "L2", "L1", "all levels"}
    visible = [t["meta"][0] for t in figure["data"] if t["visible"] is True and t.get("customdata")]
    assert set(visible) == {"formula"}
    joined = [t for t in figure["data"] if t["meta"][1] == "all" and t["name"].startswith("fast ")]
    assert len(joined) == 2 and all(len(set(t["y"])) == 1 and len(t["x"]) == 3 for t in joined), "of each count"


def test_no_mark_is_above_a_roof_only_because_of_its_clock() -> None:
    """Roofs are drawn at the highest clock; a measured one is scaled to it, and says what it is of the datasheet's."""
    measured = (Roof("fp16_tensor", 700.0, "TFLOP/s", "measured", "H200", 1500.0),)
    clocks = [
        factory.fact("bench_sm_clock", mhz, v, shape="mission") for v, mhz in (("fast", 1200.0), ("split", 1900.0))
    ]
    figure = drawn(factory.record(facts=clocks, roofs=measured))
    names = [t["name"] for t in figure["data"] if t.get("name") and t["meta"][0] == "formula"]
    sheet = 132 * 4096 * 1980e6 / 1e12
    scaled = 700 * 1980 / 1500
    assert f"fp16 tensor {scaled:.1f} TFLOP/s (measured, {100 * scaled / sheet:.0f} % of it)" in names
    fast = next(m for m in marks(figure) if m["variant"] == "fast" and m["FLOPs by"] == "formula")
    assert fast["SM clock MHz"] == 1200 and "1,200 MHz" in fast["roof"]


def test_dram_is_no_roof_of_a_warm_time_of_data_that_stays_in_l2() -> None:
    figure = drawn(full())
    texts = {t["meta"][1]: t["text"] for t in figure["data"] if t.get("customdata") and t["meta"][0] == "formula"}
    assert all("DRAM is no limit, since the data fits into L2" in text for text in texts["dram"])
    assert not any("is no limit" in text for text in texts["l2"])


def test_arrows_lead_from_another_run_to_this_one() -> None:
    record = full()
    slower = replace(
        record,
        id="20250101T000000Z-0ld0",
        facts=Facts(replace(f, value=2 * f.value) if f.name == "isolated_p50" and f.value else f for f in record.facts),
    )
    traces = [t for t in drawn(record, before=slower)["data"] if (t.get("name") or "").startswith("from run 0ld0")]
    assert {t["meta"][1] for t in traces} == set(LEVELS)
    for trace in traces:
        for old, new in zip(trace["y"][::3], trace["y"][1::3], strict=True):
            assert new == pytest.approx(2 * old)
        assert any("2.00 × faster" in text for text in trace["text"])


def test_python_returns_the_figure_that_the_page_embeds(tmp_path: Path) -> None:
    graph = pytest.importorskip("plotly.graph_objects")
    rendered(full(), tmp_path / "r", today=TODAY)
    page = embedded((tmp_path / "r/roofline.html").read_text(encoding="utf-8"), "roofline-mission")
    run = fc.Run(full())
    returned = run.roofline("mission")
    assert isinstance(returned, graph.Figure)
    assert json.loads(returned.to_json())["data"] == json.loads(graph.Figure(page).to_json())["data"]
    assert json.loads(returned.to_json())["layout"] == json.loads(graph.Figure(page).to_json())["layout"]
    with pytest.raises(UsageError, match="shape elsewhere: expected one of mission, "):
        run.roofline("elsewhere")
    with pytest.raises(UsageError, match="shape mission: expected a case with time, FLOPs and bytes, found none"):
        fc.Run(factory.bare_record()).roofline("mission")
    other = fc.Run(replace(full(), suite=replace(full().suite, name="other")))
    with pytest.raises(UsageError, match="expected a run that compares with"):
        run.roofline("mission", against=other)


def test_an_import_has_one_chart_of_all_kernels_sized_by_their_time(sample_record: Any) -> None:
    record = sample_record("app_full")
    figure = drawn(record, next(iter(record.suite.shapes)))
    dram = [(m, size) for t in figure["data"] if t.get("customdata") and t["meta"][1] == "dram"
            for m, size in zip(t["customdata"], t["marker"]["size"], strict=True)]  # fmt: skip
    assert {m[0] for m, _ in dram} == set(record.suite.variants)
    sizes = {m[0]: size for m, size in dram}
    assert max(sizes, key=lambda name: sizes[name]) == "ns_strided_float" and sizes["spilly_96"] == min(sizes.values())
    assert labels(figure)["ns_strided_float"].endswith("% of the time")
