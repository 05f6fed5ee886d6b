"""The page over runs on several chips, and the report around it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore import report
from flashcore.model.record import Facts, Record, Roof, SharingGpu, Subject
from flashcore.model.text import significant
from flashcore.report import chips_page
from tests import factory
from tests.marks import embedded, marks
from tests.report.test_report import TODAY, assert_linked, full, unpacked

RECORD = factory.record(factory.suite(budgets=[factory.budget("isolated_p50", maximum=500.0, variants=("slow",))]))
H200 = replace(RECORD, roofs=(Roof("dram", 4321.0, "GB/s", "measured", "NVIDIA H200", None, "as of the H200"),))
L4 = factory.on_l4(H200)


def rendered(folder: Path, one: Record = H200, other: Record = L4, single: bool = False) -> dict[str, str]:
    pages = report.render(one, folder, others=[other], single_file=single, today=TODAY)
    return {p.relative_to(folder.resolve()).as_posix(): unpacked(p.read_text(encoding="utf-8")) for p in pages}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return rendered(tmp_path_factory.mktemp("chips") / "r")


def test_each_chip_has_its_column_and_its_own_report_below(pages: dict[str, str]) -> None:
    assert next(iter(pages)) == "index.html"
    for chip, record in (("nvidia-h200", H200), ("nvidia-l4", L4)):
        names = {f"{chip}/{n}.html" for n in ("index", "roofline", *(f"variant/{v}" for v in record.suite.variants))}
        assert names < set(pages)
        assert f"Run {record.id}, 2026-01-02" in pages[f"{chip}/index.html"]
        assert '<a href="../index.html">Chips</a>' in pages[f"{chip}/index.html"]
    front = pages["index.html"]
    assert front.count('<th scope="colgroup" colspan="4">NVIDIA') == 2 * front.count('<table class="sortable of-chips')
    row = re.search(r'(?s)<tr><th scope="row" class="name"[^>]*>fast</th>(.*?)</tr>', front)
    times = [r.facts.number("isolated_p50", Subject("fast", shape="mission")) for r in (H200, L4)]
    assert row and all(times)
    cells = [re.sub("<[^>]*>", "", c) for c in re.findall(r"(?s)<td .*?</td>", row[1])]
    assert cells[0::4] == [significant(t or 0) for t in times]
    split = re.search(r'(?s)<tr><th scope="row" class="name"[^>]*>split</th>(.*?)</tr>', front)
    assert split and split[1].count('<td class="none" title="no TMA before sm_90">n/a</td>') == 4, (
        "only the H200 runs it"
    )


def test_each_roofline_is_of_one_chip_and_its_own_roofs(pages: dict[str, str]) -> None:
    of_mission = [embedded(pages["index.html"], f"index-{i}-mission") for i in (1, 2)]
    h200, l4 = ({trace.get("name") for trace in figure["data"]} for figure in of_mission)
    assert "DRAM 4,321 GB/s (measured, 90 % of it)" in h200 and not [n for n in l4 if n and "measured" in n]
    assert "DRAM 4,800 GB/s (datasheet)" in h200 and "DRAM 300.0 GB/s (datasheet)" in l4
    drawn = [{m["variant"] for m in marks(figure)} for figure in of_mission]
    assert "split" in drawn[0] - drawn[1]


def test_the_gate_names_the_chip(pages: dict[str, str]) -> None:
    front = pages["index.html"]
    assert "slow/mission on NVIDIA L4: isolated_p50 4,0" in front and "slow/mission on NVIDIA H200" not in front
    assert "<li>NVIDIA H200, run 20260102T030405Z-0001: gate passed: " in front
    assert "<li>NVIDIA L4, run 20260102T040000Z-0002: gate FAILED: 2 failed" in front
    assert '<a class="plain" href="index.html"><span class="badge fail">2 failed</span>' in front


def test_gpus_that_shared_a_run_are_said_with_their_spread(tmp_path: Path) -> None:
    gpu = SharingGpu("GPU-1c2d", None, 0.0031, {}, 1755.0, 60.0, (), {"bench": ("fast/mission",)})
    report.render(H200, tmp_path / "r", others=[replace(L4, gpus=(gpu,))], today=TODAY)
    text = (tmp_path / "r" / "index.html").read_text(encoding="utf-8")
    assert "<td>GPU-1c2d: bench 1; A/A 0.31 %, 1,755 MHz</td>" in text


@pytest.mark.parametrize("single", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_links_resolve_ids_are_unique_and_bytes_the_same(tmp_path: Path, single: bool) -> None:
    both = full(), factory.on_l4(full())
    pages = rendered(tmp_path / "r", *both, single=single)
    assert pages == rendered(tmp_path / "again", *both, single=single)
    assert len(pages) == (1 if single else 1 + 2 * (3 + 6))
    assert_linked(tmp_path / "r", pages)


def test_the_page_opens_with_a_shape_that_was_timed_on_all_chips(tmp_path: Path) -> None:
    def order(other: Record) -> list[str]:
        front = rendered(tmp_path / str(len(other.facts)), other=other)["index.html"]
        return re.findall(r'<option value="([^"]*)"', front)

    assert order(L4) == ["mission", "long"]
    gone = [f for f in L4.facts if not (f.subject.shape == "mission" and f.name.endswith("_p50"))]
    assert order(replace(L4, facts=Facts(gone))) == ["long", "mission"]


def test_folders_are_told_apart() -> None:
    assert chips_page.folders(["NVIDIA L4", "NVIDIA-L4", "<>", "Assets"]) == [
        "nvidia-l4", "nvidia-l4-2", "chip", "assets-4",
    ]  # fmt: skip


def test_a_shape_that_is_fitted_to_its_machine_says_so(tmp_path: Path) -> None:
    shapes = {**L4.suite.shapes, "mission": factory.shape("mission", {**factory.MISSION, "S": 256})}
    report.render(H200, tmp_path / "r", others=[replace(L4, suite=replace(L4.suite, shapes=shapes))], today=TODAY)
    text = (tmp_path / "r" / "index.html").read_text(encoding="utf-8")
    assert "NVIDIA H200: B=1, H=8, S=512, D=64; NVIDIA L4: B=1, H=8, S=256, D=64" in text
