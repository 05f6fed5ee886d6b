"""A study's page: every figure of the recorded spaces is on it, it reads without scripts, and nothing is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extensions.tune.tests.spaces import GRID, RECORDED, SPACE, header
from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.model.text import significant
from flashcore_tune import page, study
from flashcore_tune.finalists import Final
from flashcore_tune.study import Header, Result
from flashcore_tune.summary import Summary
from tests.browser import PROGRAM, Browser, browser
from tests.conftest import ROOT
from tests.report.test_report import Page

RESULTS = {r.index: r for r in RECORDED}
RECORDINGS = ROOT / "extensions" / "tune" / "benchmarks" / "results"
SPACES = sorted(RECORDINGS.glob("*.jsonl.xz"))


def written(file: Path, head: Header, results: Mapping[int, Result] = RESULTS, finals: Sequence[Final] = ()) -> Path:
    return page.write(Summary(head, results), file, finals)


def words(file: Path) -> str:
    return Page(file.read_text(encoding="utf-8")).words


@pytest.mark.parametrize("recorded", SPACES, ids=lambda p: p.name.split(".")[0])
def test_a_recorded_space_is_rendered_by_the_command(recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "study.html"
    assert main(["tune", "--show", str(recorded), "--report", str(file)]) == Exit.OK
    head, results = study.read(recorded)
    whole = Summary(head, results)
    text, read = file.read_text(encoding="utf-8"), words(file)
    best = whole.ranked[0]
    assert f"{significant(best.us)} µs at {whole.shape}" in read and whole.grid.text(best.index) in read
    for step in whole.funnel:
        assert f"{step.name} {step.left:,}" in read
        assert all(why in read for _, why in step.rejections)
    assert len(history(text)[0]["x"]) == len(whole.timed), "each that was timed is drawn"
    for axis, _, us, *_ in whole.axes().rows:
        assert axis in read and significant(us) in read
    assert "PED-ANOVA (Optuna)" in read
    assert text.split('id="all"')[1].count("<tr>") == len(results) + 1, "every candidate has its row"
    again = page.write(whole, tmp_path / "again.html")
    assert again.read_bytes() == file.read_bytes(), "the same bytes"
    assert len(file.read_bytes()) < 1_900_000


def test_a_replayed_search_writes_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite, recorded = ROOT / "examples" / "tune", RECORDINGS / "split.jsonl.xz"
    options = ["--suite", str(suite), "--replay", str(recorded), "--sampler", "random", "--evaluations", "12", "-q"]
    assert main(["tune", "split", *options, "--report", "found.html"]) == Exit.OK
    read = words(Path("found.html"))
    assert "of 12." in read and "random, seed 0" in read
    assert "Importance is unmeasured: expected at least 20 timed candidates, found" in read


def test_the_faster_losers_and_what_they_broke_stand_there(tmp_path: Path) -> None:
    whole = {i: replace(r, broken={}) for i, r in RESULTS.items()}
    quick = sorted(whole, key=lambda i: whole[i].times.get("small", 99))[:3]
    results = {**whole, **{i: replace(whole[i], broken={"registers": 0.1, "spills": 8.0}) for i in quick}}
    read = words(written(tmp_path / "p.html", header("grid"), results))
    faster, kept = Summary(header("grid"), results).within_budgets()
    assert kept is not None and [one.index for one in faster] == quick
    assert f"The fastest that keeps every soft budget takes {significant(kept.us)} µs" in read
    assert read.split("Who was faster")[1].split("Genealogy")[0].count("registers by 10 %, spills by 800 %") == 3


def test_several_objectives_have_a_front(tmp_path: Path) -> None:
    one = written(tmp_path / "one.html", header("grid"))
    several = written(tmp_path / "p.html", header("grid", space=replace(SPACE, objectives=("time", "smem"))))
    assert "Pareto" not in words(one) and "What no other candidate beats in every objective" in words(several)


def test_what_nobody_timed_is_unmeasured_and_its_static_facts_are_there(tmp_path: Path) -> None:
    built = {i: Result(i, facts={"registers": 90.0, "spill_store_bytes": 16.0}, broken={"spills": 16.0})
             for i in GRID.feasible}  # fmt: skip
    read = words(written(tmp_path / "p.html", header("grid"), built))
    assert read.count(" 90 unmeasured 16 unmeasured ") == len(built), "registers, smem, spills, occupancy"
    assert f"{len(built)} of {len(built)} candidates compile and may be launched; none was timed." in read
    assert (
        read.count("unmeasured") >= 5
        and read.split("All candidates")[1].count(" spills ") == len(built)
        and "µs at small" not in read
    )


def test_finalists_and_hostile_words_stand_as_they_are(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script> & <b>"
    results = {**RESULTS, GRID.feasible[0]: Result(GRID.feasible[0], "build", bad)}
    finals = [Final(GRID.feasible[-1], "small", "base", 5.0, None, None, "it hangs")]
    file = written(tmp_path / "p.html", header("grid", command=bad), results, finals)
    text = file.read_text(encoding="utf-8")
    assert "<script>alert" not in text and text.count("&lt;script&gt;alert(1)") >= 3
    assert "not timed: it hangs" in words(file)


def test_no_result_at_all_is_a_page_too(tmp_path: Path) -> None:
    assert "Nothing was looked at yet." in words(written(tmp_path / "p.html", header("grid"), {}))


A, B, C = GRID.feasible[:3]
#: Point → µs: the second is worse, the third the best.
TIMES = {A: 4.0, B: 8.0, C: 2.0}


def timed_study(floor: float | None = None) -> Summary:
    return Summary(header(floor=floor), {i: Result(i, times={"small": us}) for i, us in TIMES.items()})


def history(text: str) -> list[dict[str, Any]]:
    """The traces of the chart of times over evaluations: candidates, the best so far, and the floor."""
    match = re.search(r'id="study-history-data">(.*?)</script>', text)
    assert match
    return list(json.loads(match[1])["data"])


def test_times_are_placed_by_evaluation_with_the_best_as_steps(tmp_path: Path) -> None:
    summary = timed_study()
    dots, best = history(page.write(summary, tmp_path / "p.html").read_text(encoding="utf-8"))
    assert (dots["x"], dots["y"]) == ([1, 2, 3], [4.0, 8.0, 2.0])
    assert (best["x"], best["y"], best["line"]["shape"]) == ([1, 3, 3], [4.0, 2.0, 2.0], "hv")
    assert dots["customdata"] == [[1, 4.0, 4.0, A], [2, 8.0, 4.0, B], [3, 2.0, 2.0, C]]
    assert f"point {B}: 8.000 µs<br>{GRID.text(B)}" in dots["text"]


@pytest.mark.parametrize(("floor", "drawn"), [(None, False), (1.0, True), (0.5, False)])
def test_a_floor_is_drawn_where_it_is_near(floor: float | None, drawn: bool, tmp_path: Path) -> None:
    _, _, *floors = history(page.write(timed_study(floor), tmp_path / "p.html").read_text(encoding="utf-8"))
    assert [trace["y"] for trace in floors] == [[floor, floor]] * drawn


def test_a_single_candidate_has_a_picture(tmp_path: Path) -> None:
    one = Summary(header(), {A: Result(A, times={"small": 4.0})})
    assert len(history(page.write(one, tmp_path / "p.html").read_text(encoding="utf-8"))[0]["x"]) == 1


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("tool: needs Chromium and Playwright")
    with browser() as result:
        yield result


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dark"), [((1280, 900), False), ((390, 844), True)])
def test_in_a_browser_it_is_quiet_fits_and_sorts(
    chromium: Browser, tmp_path: Path, size: tuple[int, int], dark: bool
) -> None:
    file = written(tmp_path / "p.html", *study.read(SPACES[0]))
    with chromium.page(file, size=size, dark=dark) as shown:
        assert shown.console == [] and shown.requests == []
        assert shown.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        shown.js("document.querySelector('table[data-main] th[data-key=point] button').click()")
        points = shown.js("Array.from(document.querySelectorAll('table[data-main] tbody th'), (c) => +c.innerText)")
        assert points == sorted(points) and len(points) > 100
        buttons = shown.js("Array.from(document.querySelectorAll('figure.chart .tools button'), (b) => b.textContent)")
        assert buttons == ["PNG", "SVG", "CSV"]
    with chromium.page(file, size=size, dark=dark, scripts=False) as shown:
        assert shown.console == [] and shown.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390])
def test_few_of_many_points_have_a_bar_that_is_seen_and_labeled(chromium: Browser, tmp_path: Path, width: int) -> None:
    (recorded,) = (RECORDINGS / "studies").glob("warpgroups-*")
    file = written(tmp_path / "p.html", *study.read(recorded))
    with chromium.page(file, size=(width, 900)) as shown:
        rows = shown.js("""Array.from(document.querySelectorAll(".funnel tr"), (row) => {
          const [bar, label] = ["i", "b"].map((part) => row.querySelector(part).getBoundingClientRect());
          return [row.querySelector("b").innerText, bar.width, label.left - bar.right, label.right];
        })""")
    assert [row[0] for row in rows] == ["4,752", "1,500", "81", "80", "80", "79", "79"]
    assert all(bar >= 4 and 0 < gap < 20 and right < width for _, bar, gap, right in rows)
    assert rows[0][1] / rows[1][1] == pytest.approx(4752 / 1500, rel=0.02), "lengths are in proportion"
