"""The kernels and ranges of an import, by total time: in the terminal and on the overview page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.explain.readings import Readings
from flashcore.features.reports import kernels
from tests.support.judged import book_of, judged
from tests.support.launches import launches
from tests.support.traces import LAUNCHES, nsys_export


def test_launches_of_all_configurations_add_up() -> None:
    record = launches(("often", 8, 2e3, ()), ("once", 8, 5e3, ()), ("often", 64, 3e3, ()), ("often", 8, 4e3, ()))
    rows = kernels.rows(Readings(record))
    assert [(r.name, r.launches, r.us, r.shape) for r in rows] == [
        ("often", 3, 9.0, "g8_b128"), ("once", 1, 5.0, "g8_b128")
    ]  # fmt: skip
    assert sum(r.percent or 0 for r in rows) == pytest.approx(100)


def test_ranges_are_a_tree_with_the_most_time_first() -> None:
    step = ("d:step",)
    record = launches(
        ("a", 8, 1e3, (*step, "d:forward")), ("b", 8, 7e3, (*step, "d:backward")), ("a", 8, 1e3, (*step, "d:forward")),
        ("c", 8, 1e3, step), ("c", 8, 20e3, ()), ("a", 8, 2e3, ("d:eval", "d:forward")),
    )  # fmt: skip
    tree = [(r.depth, r.name, r.launches, r.us) for r in kernels.ranges(record)]
    assert tree == [
        (0, "d:step", 4, 10.0), (1, "d:backward", 1, 7.0), (1, "d:forward", 2, 2.0),
        (0, "d:eval", 1, 2.0), (1, "d:forward", 1, 2.0),
    ]  # fmt: skip
    assert kernels.ranges(record)[0].percent == pytest.approx(100 * 10 / 32)
    assert "\n· d:backward " in kernels.text(Readings(record))


def test_an_unmeasured_launch_leaves_its_kernel_and_range_unmeasured() -> None:
    record = launches(("a", 8, None, ("d:step",)), ("b", 8, 1e3, ()))
    assert [(r.name, r.us, r.percent) for r in kernels.rows(Readings(record))] == [("b", 1.0, 100.0), ("a", None, None)]
    assert kernels.ranges(record)[0].us is None


def overview(folder: Path, tmp_path: Path) -> str:
    assert main(["report", str(folder), "-o", str(tmp_path / "pages")]) == 0
    return (tmp_path / "pages" / "index.html").read_text()


def test_the_overview_lists_all_kernels_by_time_without_words_of_a_suite(
    sample_reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = str(sample_reports / "app_full.ncu-rep")
    assert main(["import", report, "--profiles", str(tmp_path / "runs")]) == 0
    terminal = capsys.readouterr()
    folder = Path(terminal.out.strip())  # for scripts: nothing else on standard output
    page = overview(folder, tmp_path)
    names = ["ns::strided<float>", "saxpy", "ns::strided<double>", "spilly<96>"]
    assert [line.split()[0] for line in terminal.err.splitlines()[2:]] == names
    shown = re.findall(
        r'<th scope="row" class="name" title="[^"]*"><a href="variant/\w+\.html\?shape=\w+">(.*?)</a></th>', page
    )
    assert [re.sub("<wbr>", "", name) for name in shown] == [n.replace("<", "&lt;").replace(">", "&gt;") for n in names]
    main_part = page.partition("<main")[2]
    assert not re.search("ladder|winner|baseline|parent|floor", main_part, re.I)
    assert "43.5&nbsp;%" in page and "L2 busy 88 %" in page and '<details class="origin">' in page


def test_the_overview_as_json_has_reasons_for_what_is_unmeasured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = nsys_export(tmp_path / "step.sqlite", LAUNCHES)
    assert main(["import", str(path), "--profiles", str(tmp_path / "runs"), "--format", "json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert Path(parsed["run"]).is_dir() and parsed["ranges"] == []
    first, second = parsed["kernels"]
    assert (first["name"], first["launches"], first["us"]) == ("cutlass::Kernel<float>", 2, 200.0)
    assert first["limited_by"] is None and first["limited_by_reason"] == f"no counter shows it at {first['shape']}"
    assert second["us_reason"] is None and first["percent"] + second["percent"] == pytest.approx(100)


def test_the_overview_of_a_trace_and_of_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = nsys_export(tmp_path / "step.sqlite", LAUNCHES)
    assert main(["import", str(path), "--profiles", str(tmp_path / "runs")]) == 0
    terminal = capsys.readouterr()
    assert terminal.err.splitlines()[2].split() == ["cutlass::Kernel<float>", "2", "200.0", "94.8", "unmeasured"]
    page = overview(Path(terminal.out.strip()), tmp_path)
    assert "<b>94.8&nbsp;%</b> <span>of the time of 2 kernels</span>" in page and "200.0&nbsp;µs in 2 launches" in page
    assert "<b>unmeasured</b>" in page and "no counter shows it at" in page and 'class="whole"' not in page
    assert "<b>count what limits it</b>" in page and "no rule applies" not in page


def test_the_overviews_of_a_suite_and_of_a_capture_stay(tmp_path: Path) -> None:
    from flashcore.features.reports import page
    from tests import factory

    assert page.page(book_of(factory.record())) is None
    imported = launches(("a", 8, 1e3, ()))
    assert page.page(book_of(imported)) is not None
    surveyed = replace(imported, suite=replace(imported.suite, notes=("a: 99 % of 40 launches",)))
    assert page.page(book_of(surveyed)) is None  # one launch of each kernel was measured


def test_ranges_are_indented_on_the_page(tmp_path: Path, sample_report: Any) -> None:
    from flashcore.pipeline import pages

    record = launches(("a", 8, 1e3, ("d:step", "d:forward")))
    pages.write(pages.ReportTarget(str(tmp_path / "pages"), single_file=False), judged(record))
    page = (tmp_path / "pages" / "index.html").read_text()
    assert "&emsp;d:forward" in page or "\u2003d:forward" in page
