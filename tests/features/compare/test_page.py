"""The page *Compare*: its figures are the analysis's own, and what contradicts or cannot be compared is said."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.explain import compare_records
from flashcore.features.compare import page as compare_page
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.record import CaseKey, Record, Subject
from flashcore.model.suite import REGIMES
from flashcore.records import store
from tests import factory
from tests.support.compared import MORE, contradicting, timed
from tests.support.judged import rendered
from tests.support.pages import TODAY, Page, full

OLD = "20260101T000000Z-0000"


def read(folder: Path, record: Record, **options: Any) -> tuple[Page, dict[str, Any]]:
    rendered(record, folder, today=TODAY, pages=MORE, **options)
    text = (folder / "compare.html").read_text(encoding="utf-8")
    match = re.search(r'id="compare-data">(.*?)</script>', text, re.DOTALL)
    return Page(text), json.loads(match[1]) if match else {}


def sentence(page: Page) -> str:
    return page.words


def place(data: Mapping[str, Any], label: str) -> int:
    return [s[0] for s in data["sides"]].index(label)


def rows(page: Page) -> dict[str, list[str]]:
    return {r[0][2]: [" ".join(c[2].split()) for c in r[1:]] for r in page.rows if len(r) == 6}


def test_the_winner_stands_against_its_parent_without_scripts(tmp_path: Path) -> None:
    page, data = read(tmp_path / "r", full())
    assert data["shapes"]["mission"]["first"] == [place(data, "split"), place(data, "fast")]
    assert "split is 2.00 × faster than fast , isolated, 95 % [" in sentence(page)
    table = rows(page)
    times = {m: full().facts.number(f"{m}_p50", Subject("split", shape="mission")) for m in REGIMES}
    for mode, time in times.items():
        assert time is not None and float(table[mode.replace("_", " ")][1]) == pytest.approx(time, rel=1e-3)
        assert table[mode.replace("_", " ")][2:] == ["2.00 ×", table[mode.replace("_", " ")][3], "faster"]
    assert table["under ncu"][3] == "unmeasured"  # one launch has no interval
    assert "contradict" not in sentence(page).replace("contradiction", "")


def test_every_pairs_ratio_and_interval_are_those_of_the_samples(tmp_path: Path) -> None:
    record = full()
    _, data = read(tmp_path / "r", record)
    checked = 0
    for shape in data["shapes"]:
        for mode in REGIMES:
            series = {
                place(data, c.variant): s for (c, m), s in record.samples.items() if (c.shape, m) == (shape, mode)
            }
            for i, series_of_case in series.items():
                for j, other in series.items():
                    if i == j:
                        continue
                    result = compare_page._pair(data, shape, mode, i, j)
                    wanted = intervals.ratio(other, series_of_case)
                    assert result is not None and result.value == pytest.approx(wanted.value, rel=2e-4)
                    assert (result.low, result.high) == pytest.approx((wanted.low, wanted.high), rel=3e-4)
                    checked += 1
    assert checked >= 60
    assert data["moved"] == compare_records.MOVED


def test_rounds_that_only_one_saw_do_not_count(tmp_path: Path) -> None:
    record = full()
    key = Case("split", "mission"), "isolated"
    longer = dataclasses.replace(record, raw_samples={**record.samples, key: (*record.samples[key], *[99.0] * 200)})
    longer = dataclasses.replace(
        longer, facts=type(record.facts)([*record.facts, factory.fact("isolated_p50", 99.0, "split", shape="mission")])
    )
    _, data = read(tmp_path / "r", longer)
    result = compare_page._pair(data, "mission", "isolated", place(data, "split"), place(data, "fast"))
    assert result is not None and result.value == pytest.approx(2.0, rel=0.02)


def test_regimes_that_contradict_each_other_are_flagged(tmp_path: Path) -> None:
    record = contradicting()
    _, data = read(tmp_path / "r", record)
    verdict = compare_page._verdict(data, "mission", place(data, "split"), place(data, "fast"))
    assert re.fullmatch(
        r"The regimes contradict each other: 1\.\d\d.× faster back to back \[1\.\d\d, 1\.\d\d\], "
        r"but 0\.9\d\d.× the speed isolated \[0\.\d+, 0\.\d+\]\.",
        verdict["contradiction"],
    )
    turned = compare_page._verdict(data, "mission", place(data, "fast"), place(data, "split"))
    assert "faster isolated" in turned["contradiction"] and "the speed back to back" in turned["contradiction"]
    alone = compare_page._verdict(data, "mission", place(data, "split"), place(data, "slow"))
    assert alone["contradiction"] == ""


def test_one_percent_or_an_interval_across_one_contradicts_nothing(tmp_path: Path) -> None:
    record = timed(full(), "split/mission", isolated=40.4, back_to_back=30.0, cold=50.5)
    _, data = read(tmp_path / "r", record)
    pair = place(data, "split"), place(data, "fast")
    assert compare_page._verdict(data, "mission", *pair)["contradiction"] == ""
    assert "as fast as" in compare_page._verdict(data, "mission", *pair)["answer"][0]


def test_another_run_is_offered_and_first(tmp_path: Path) -> None:
    older = dataclasses.replace(factory.record(full().suite, times={"split": 30.0}), id=OLD)
    page, data = read(tmp_path / "r", full(), against=older)
    assert data["runs"] == [full().id, OLD] and data["alike"]
    twin = place(data, "split (0000)")
    assert data["shapes"]["mission"]["first"] == [place(data, "split"), twin]
    assert re.search(
        r"split has 1\.\d\d × the speed of split \(0000\) , isolated, no interval; "
        r"times of two runs are not judged\.", sentence(page)
    )  # fmt: skip
    assert rows(page)["isolated"][4] == "not judged"
    assert f"Run {full().id} against run {OLD}." in sentence(page)
    assert compare_page._pair(data, "mission", "isolated", place(data, "split"), twin) is None
    (cell,) = [row[4] for row in page.rows if len(row) == 6 and row[0][2] == "isolated"]
    assert "no interval: the times were taken in different runs" in str(cell)
    assert "Both ran the same machine code" in sentence(page)  # by their keys: shown, since it is so


def test_the_same_code_is_said_of_the_same_code_alone(tmp_path: Path) -> None:
    older = dataclasses.replace(factory.record(full().suite), id=OLD)
    other = {k: dataclasses.replace(v, code="x" * 64) for k, v in older.keys.items()}
    _, data = read(tmp_path / "r", full(), against=dataclasses.replace(older, keys=other))
    pair = data["shapes"]["mission"]["first"]
    assert not compare_page._verdict(data, "mission", *pair)["same"]
    assert isinstance(next(iter(other.values())), CaseKey)


def test_times_of_other_machines_are_not_compared(tmp_path: Path) -> None:
    older = dataclasses.replace(factory.record(full().suite), id=OLD, environment=factory.environment(gpu="NVIDIA L4"))
    page, data = read(tmp_path / "r", full(), against=older)
    assert data["apart"] == "measured on NVIDIA L4, not NVIDIA H200"
    assert "split and split (0000) : their times are not compared" in sentence(page)
    assert "times are not comparable: measured on NVIDIA L4, not NVIDIA H200" in sentence(page)
    assert rows(page)["isolated"][2:4] == ["unmeasured", "unmeasured"]


def test_beyond_the_most_pairs_kin_keep_their_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_page, "MOST_PAIRS", 0)
    parents = {"slow": None, "fast": "slow", "split": "fast", "wide": "slow"}
    suite = factory.suite([factory.variant(n, parent=p) for n, p in parents.items()], baseline="slow")
    _, data = read(tmp_path / "r", factory.record(suite, times={"wide": 60.0}))

    def verdict(one: str, other: str) -> Any:
        return compare_page._verdict(data, "mission", place(data, one), place(data, other))

    for one, other in (("split", "fast"), ("fast", "slow"), ("wide", "split"), ("wide", "slow")):
        assert verdict(one, other)["rows"][0][4].text.startswith("[")
    bare = verdict("fast", "wide")["rows"][0]
    assert bare[3].text == "1.50 ×" and bare[4].kind == "missing" and "too many pairs" in bare[4].title
    assert verdict("fast", "wide")["contradiction"] == ""


def test_imported_kernels_are_compared_by_what_ncu_counted(tmp_path: Path, sample_record: Any) -> None:
    record = sample_record("app_full")
    rendered(record, tmp_path / "alone", today=TODAY, pages=MORE)
    assert not (tmp_path / "alone/compare.html").exists(), "its kernels have nothing in common"
    page, data = read(tmp_path / "r", record, against=dataclasses.replace(record, id="20260102T000000Z-0000"))
    assert data["shapes"]["g16384_b256"]["first"] is not None
    assert re.search(r"has 1\.00 × the speed of \w+ \(0000\) , under ncu, no interval; times of two", sentence(page))
    assert rows(page)["isolated"] == ["unmeasured", "unmeasured", "unmeasured", "unmeasured", "–"]
    names = [f[0] for f in data["facts"]]
    one, other = (data["shapes"]["g16384_b256"]["cases"][str(i)] for i in data["shapes"]["g16384_b256"]["first"])
    assert one["c"][names.index("ncu_duration")] / 1e3 == pytest.approx(one["t"]["under_ncu"])
    assert other["c"] and data["sources"]


def test_equal_times_of_two_runs_are_not_called_equal(tmp_path: Path) -> None:
    older = dataclasses.replace(contradicting(), id=OLD)
    _, data = read(tmp_path / "r", contradicting(), against=older)
    pair = place(data, "split"), place(data, "split (0000)")
    answer = compare_page._verdict(data, "mission", *pair)["answer"]
    assert "as fast as" not in " ".join(answer) and "not judged" in answer[1]
    across = compare_page._verdict(data, "mission", place(data, "split"), place(data, "fast (0000)"))
    assert across["contradiction"] == "" and across["rows"][0][-1].text == "not judged"
    within = compare_page._verdict(data, "mission", place(data, "split"), place(data, "fast"))
    assert within["contradiction"] != ""


def test_a_pair_of_this_run_reads_as_without_the_other(tmp_path: Path, sample_record: Any) -> None:
    imported = sample_record("app_full")
    _, alone = read(tmp_path / "r", full())
    _, verdict = read(tmp_path / "s", full(), against=imported)
    assert verdict["apart"] == "of suite imported, not attention"
    one, other = (compare_page._verdict(d, "mission", place(d, "split"), place(d, "fast")) for d in (alone, verdict))
    assert one == other and not one["across"] and "faster" in one["answer"][0]


def test_a_record_without_a_shape_in_common_is_shown_beside_at_its_own(tmp_path: Path, sample_record: Any) -> None:
    imported = sample_record("app_full")
    page, data = read(tmp_path / "r", full(), against=imported)
    first, against = data["shapes"]["mission"]["first"]
    assert first == place(data, "split") and not data["sides"][against][2] and not data["alike"]
    variant = data["sides"][against][1]
    name = next(iter(s for s in imported.suite.shapes.values() if imported.suite.variants[variant].runs_on(s))).name
    assert data["sides"][against][0] == f"{variant} (0000, {name})"
    assert f"split and {variant} (0000, {name}) : their times are not compared" in sentence(page)
    assert "times are not comparable: of suite imported, not attention" in sentence(page)
    wanted = imported.facts.number("ncu_duration", Subject(variant, shape=name))
    assert wanted and float(rows(page)["under ncu"][0].replace(",", "")) == pytest.approx(wanted / 1e3, rel=1e-3)
    assert rows(page)["under ncu"][2] == "unmeasured"
    counters = data["shapes"]["mission"]["cases"][str(against)]["c"]
    assert counters[[f[0] for f in data["facts"]].index("ncu_duration")] == pytest.approx(wanted)


def test_a_variant_that_the_other_lacks_stands_against_its_winner(tmp_path: Path) -> None:
    suite = full().suite
    older = factory.record(
        dataclasses.replace(suite, variants={k: v for k, v in suite.variants.items() if k != "split"})
    )
    _, data = read(tmp_path / "r", full(), against=dataclasses.replace(older, id=OLD))
    assert data["shapes"]["mission"]["first"] == [place(data, "split"), place(data, "fast (0000)")]


def test_without_two_measured_cases_there_is_nothing_to_compare(tmp_path: Path) -> None:
    rendered(factory.bare_record(), tmp_path / "r", today=TODAY, pages=MORE)
    assert not (tmp_path / "r/compare.html").exists()


def test_a_report_of_the_second_run_has_both_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, older = factory.record(), dataclasses.replace(factory.record(times={"split": 30.0}), id=OLD)
    for run in (record, older):
        folder = tmp_path / "profiles" / run.id
        folder.mkdir(parents=True)
        store.write(run, folder)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", OLD, record.id, "-o", "r"]) == Exit.OK
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{OLD} → {record.id}") and printed[-1] == str(tmp_path / "r/compare.html")
    assert f"Run {record.id} against run {OLD}" in Path("r", "compare.html").read_text(encoding="utf-8")
    assert main(["compare", OLD, record.id, "-o", "one", "--single-file", "--format", "json"]) == Exit.OK
    captured = capsys.readouterr()
    assert json.loads(captured.out)["after"]["name"] == record.id
    assert captured.err.strip() == str(tmp_path / "one/index.html")
    assert main(["compare", "20990101T000000Z-0000", record.id]) == Exit.USAGE
