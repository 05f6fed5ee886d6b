"""The page *Compare*: its figures are the analysis's own, and what contradicts or cannot be compared is said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.explain import compare_records
from flashcore.features.compare import page as compare_page
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.record import CaseKey, CaseSubject, Record
from flashcore.model.suite import TIMING_MODES
from flashcore.model.text import significant
from flashcore.records import store
from tests import factory
from tests.support.compared import MORE, contradicting, timed
from tests.support.judged import rendered
from tests.support.pages import TODAY, Page, data, full

OLD = "20260101T000000Z-0000"


def read(folder: Path, record: Record, **options: Any) -> tuple[Page, dict[str, Any]]:
    rendered(record, folder, today=TODAY, pages=MORE, **options)
    text = (folder / "compare.html").read_text(encoding="utf-8")
    return Page(text), data(text, "compare")


def place(data: Mapping[str, Any], label: str) -> int:
    return [s[0] for s in data["sides"]].index(label)


def pair(data: Mapping[str, Any], focus: str, against: str, shape: str = "mission") -> dict[str, Any]:
    """What the page says of a pair; its times by their mode: before, after, ratio, interval and verdict, or the reasons
    why these are missing."""
    found = data["shapes"][shape]["pairs"][f"{place(data, focus)} {place(data, against)}"]
    times = [[x if isinstance(x, str) else x["missing"] for x in row] for row in found["times"]]
    return {
        **found,
        "answer": " ".join(found["answer"]).replace("\u00a0", " "),
        "times": dict(zip(data["modes"], times, strict=True)),
    }


def first(data: Mapping[str, Any], shape: str = "mission") -> list[str]:
    """The labels of the first pair."""
    return [data["sides"][int(i)][0] for i in data["shapes"][shape]["first"].split()]


def test_the_winner_stands_against_its_best_reference_and_without_scripts(tmp_path: Path) -> None:
    page, data = read(tmp_path / "r", full())
    assert first(data) == ["split", "cudnn"]
    assert "split has 0.450 × the speed of cudnn, isolated, 95 % [" in page.words
    times = {m: full().facts.number(f"{m}_p50", CaseSubject(Case("split", "mission"))) for m in TIMING_MODES}
    shown = pair(data, "split", "fast")["times"]
    for mode, time in times.items():
        row = shown[mode.replace("_", " ")]
        assert time is not None and float(row[1]) == pytest.approx(time, rel=1e-3)
        assert (row[2], row[4]) == ("2.00 ×", "faster")
    assert shown["ncu duration"][3].startswith("no interval")  # one launch
    assert pair(data, "split", "fast")["contradiction"] == ""


def test_each_variant_stands_against_its_parent_the_baseline_the_best_reference_and_the_winner(tmp_path: Path) -> None:
    _, data = read(tmp_path / "r", full())
    pairs = [[data["sides"][int(i)][0] for i in key.split()] for key in data["shapes"]["mission"]["pairs"]]
    partners = {focus: [other for one, other in pairs if one == focus] for focus, _ in pairs}
    assert partners["split"] == ["cudnn", "fast", "slow"]
    assert partners["fast"] == ["slow", "cudnn", "split"]
    assert partners["cudnn"] == ["slow", "split"]


def test_identical_shapes_are_one_choice(tmp_path: Path) -> None:
    shapes = [factory.shape("mission", factory.MISSION), factory.shape("alias", factory.MISSION)]
    page, data = read(tmp_path / "r", factory.record(factory.suite(shapes=shapes)))
    assert [*data["shapes"]] == ["mission"] and "Shape" not in page.words


def test_every_pairs_ratio_and_interval_are_those_of_the_samples(tmp_path: Path) -> None:
    record = full()
    _, data = read(tmp_path / "r", record)
    checked = 0
    for shape, of in data["shapes"].items():
        for key in of["pairs"]:
            one, other = (data["sides"][int(i)][0] for i in key.split())
            for mode in TIMING_MODES:
                samples = [record.samples.get((Case(name, shape), mode)) for name in (other, one)]
                if all(samples):
                    wanted = intervals.ratio(samples[0] or (), samples[1] or ())
                    row = pair(data, one, other, shape)["times"][mode.replace("_", " ")]
                    assert row[2] == f"{significant(wanted.value, 3)} ×"
                    assert row[3] == f"[{significant(wanted.low, 3)}, {significant(wanted.high, 3)}]"
                    checked += 1
    assert checked >= 40


def test_rounds_that_only_one_saw_do_not_count(tmp_path: Path) -> None:
    record = full()
    key = Case("split", "mission"), "isolated"
    longer = replace(record, raw_samples={**record.samples, key: (*record.samples[key], *[99.0] * 200)})
    longer = replace(
        longer, facts=type(record.facts)([*record.facts, factory.fact("isolated_p50", 99.0, "split", shape="mission")])
    )
    _, data = read(tmp_path / "r", longer)
    assert pair(data, "split", "fast")["times"]["isolated"][2] == "2.00 ×"


def test_modes_that_contradict_each_other_are_flagged(tmp_path: Path) -> None:
    _, data = read(tmp_path / "r", contradicting())
    assert re.fullmatch(
        r"The modes contradict each other: 1\.\d\d.× faster back to back \[1\.\d\d, 1\.\d\d\], "
        r"but 0\.9\d\d.× the speed isolated \[0\.\d+, 0\.\d+\]\.",
        pair(data, "split", "fast")["contradiction"],
    )
    assert pair(data, "split", "slow")["contradiction"] == ""


def test_one_percent_or_an_interval_across_one_contradicts_nothing(tmp_path: Path) -> None:
    record = timed(full(), "split/mission", isolated=40.4, back_to_back=30.0, cold=50.5)
    _, data = read(tmp_path / "r", record)
    found = pair(data, "split", "fast")
    assert found["contradiction"] == "" and "as fast as" in found["answer"]


def test_two_runs_have_a_summary_a_table_and_pairs(tmp_path: Path) -> None:
    older = replace(factory.record(full().suite, times={"split": 30.0}), id=OLD)
    page, data = read(tmp_path / "r", full(), against=older)
    assert data["runs"] == [full().id, OLD] and first(data) == ["split", "split (0000)"]
    assert f"Run {full().id} compared with run {OLD}: " in page.words
    assert "2 faster (2 of the same code)" in page.words
    (row,) = ([c[2] for c in row] for row in page.rows if row[0][2] == "split/mission")
    assert row[1] == "isolated" and row[4:] == ["1.50", "unmeasured", "faster, not judged, same code"]
    found = pair(data, "split", "split (0000)")
    assert found["answer"] == "is 1.50 × faster than , isolated, no interval; times of two runs are not judged"
    assert found["times"]["isolated"][3:] == ["no interval: the times were taken in different runs", "not judged"]
    assert found["same"]


def test_the_table_marks_what_got_worse(tmp_path: Path) -> None:
    older = replace(factory.record(full().suite, times={"split": 10.0, "slow": 900.0}), id=OLD)
    rendered(full(), tmp_path / "r", today=TODAY, pages=MORE, against=older)
    text = (tmp_path / "r" / "compare.html").read_text(encoding="utf-8")
    worse = re.findall(r'<tr class="worse">.*?>([^<]+)</a>', text)
    assert set(worse) == {"split/mission", "split/long"} and ">slow/mission</a>" in text


def test_the_same_code_is_said_of_the_same_code_alone(tmp_path: Path) -> None:
    older = replace(factory.record(full().suite), id=OLD)
    other = {k: replace(v, code="x" * 64) for k, v in older.keys.items()}
    _, data = read(tmp_path / "r", full(), against=replace(older, keys=other))
    assert not pair(data, "split", "split (0000)")["same"]
    assert isinstance(next(iter(other.values())), CaseKey)


def test_times_of_other_machines_are_not_compared(tmp_path: Path) -> None:
    older = replace(factory.record(full().suite), id=OLD, environment=factory.environment(gpu="NVIDIA L4"))
    page, data = read(tmp_path / "r", full(), against=older)
    reason = "measured on NVIDIA L4, not NVIDIA H200"
    assert f"times are not comparable: {reason}" in page.words
    found = pair(data, "split", "split (0000)")
    assert f": their times are not compared ({reason})" in found["answer"]
    assert found["times"]["isolated"][2:] == [reason, reason, "–"]


def test_imported_kernels_are_compared_by_what_ncu_counted(tmp_path: Path, sample_record: Any) -> None:
    record = sample_record("app_full")
    rendered(record, tmp_path / "alone", today=TODAY, pages=MORE)
    assert not (tmp_path / "alone/compare.html").exists(), "its kernels have nothing in common"
    _, data = read(tmp_path / "r", record, against=replace(record, id="20260102T000000Z-0000"))
    focus, against = first(data, "g16384_b256")
    found = pair(data, focus, against, "g16384_b256")
    assert "has 1.00 × the speed of" in found["answer"] and "ncu duration, no interval; times of two" in found["answer"]
    assert found["times"]["isolated"][4] == "–" and found["times"]["ncu duration"][2] == "1.00 ×"
    cases = data["shapes"]["g16384_b256"]["cases"].values()
    assert all(any(case["c"]) for case in cases) and data["sources"]


def test_equal_times_of_two_runs_are_not_called_equal(tmp_path: Path) -> None:
    older = replace(contradicting(), id=OLD)
    _, data = read(tmp_path / "r", contradicting(), against=older)
    across = pair(data, "split", "split (0000)")
    assert "as fast as" not in across["answer"] and "not judged" in across["answer"] and across["contradiction"] == ""
    assert pair(data, "split", "fast")["contradiction"] != ""


def test_a_pair_of_this_run_reads_as_without_the_other(tmp_path: Path, sample_record: Any) -> None:
    imported = sample_record("app_full")
    _, alone = read(tmp_path / "r", full())
    _, beside = read(tmp_path / "s", full(), against=imported)
    one, other = (pair(d, "split", "fast") for d in (alone, beside))
    assert one["answer"] == other["answer"] and one["times"] == other["times"]


def test_a_record_without_a_shape_in_common_is_shown_beside_at_its_own(tmp_path: Path, sample_record: Any) -> None:
    imported = sample_record("app_full")
    page, data = read(tmp_path / "r", full(), against=imported)
    focus, against = first(data)
    variant = data["sides"][place(data, against)][1]
    name = next(iter(s for s in imported.suite.shapes.values() if imported.suite.variants[variant].runs_on(s))).name
    assert (focus, against) == ("split", f"{variant} (0000, {name})")
    assert "times are not comparable: of suite imported, not attention" in page.words
    found = pair(data, focus, against)
    wanted = imported.facts.number("ncu_duration", CaseSubject(Case(variant, name)))
    assert wanted and float(found["times"]["ncu duration"][0].replace(",", "")) == pytest.approx(wanted / 1e3, rel=1e-3)
    assert {outcome for *_, outcome in found["moved"]} <= {"changed"}, "of two shapes, less is not better"


def test_a_variant_that_the_other_lacks_stands_against_its_winner(tmp_path: Path) -> None:
    suite = full().suite
    older = factory.record(replace(suite, variants={k: v for k, v in suite.variants.items() if k != "split"}))
    _, data = read(tmp_path / "r", full(), against=replace(older, id=OLD))
    assert first(data) == ["split", "fast (0000)"]


def test_counters_that_differ_have_the_outcome_of_the_analysis(tmp_path: Path) -> None:
    record = full()
    given = {"bank_conflicts": (100, 485), "l2_bytes": (1000, 400), "op_fmul": (10, 30), "dram_bytes": (100, 99)}
    facts = [
        factory.fact(name, value, variant, shape="mission")
        for name, values in given.items()
        for variant, value in zip(("fast", "split"), values, strict=True)
    ]
    record = replace(record, facts=type(record.facts)([*record.facts, *facts]))
    _, data = read(tmp_path / "r", record)
    found = {data["facts"][i][0]: (size, outcome) for i, size, outcome in pair(data, "split", "fast")["moved"]}
    after, before = (CaseSubject(Case(variant, "mission")) for variant in ("split", "fast"))
    moved = compare_records.moved(record, record, after, before, most=None)
    assert [*found] == [c.fact for c in moved if c.fact in compare_page.COUNTERS]
    assert {name: found.get(name) for name in given} == {
        "bank_conflicts": (0.79, "worse"),
        "l2_bytes": (-0.6, "better"),
        "op_fmul": (0.67, "changed"),
        "dram_bytes": None,
    }


def test_without_two_measured_cases_there_is_nothing_to_compare(tmp_path: Path) -> None:
    rendered(factory.bare_record(), tmp_path / "r", today=TODAY, pages=MORE)
    assert not (tmp_path / "r/compare.html").exists()


def test_a_report_of_the_second_run_has_both_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, older = factory.record(), replace(factory.record(times={"split": 30.0}), id=OLD)
    for run in (record, older):
        folder = tmp_path / "profiles" / run.id
        folder.mkdir(parents=True)
        store.write(run, folder)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", OLD, record.id, "-o", "r"]) == Exit.OK
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{OLD} → {record.id}") and printed[-1] == str(tmp_path / "r/compare.html")
    assert f"Run {record.id} compared with run {OLD}" in Path("r", "compare.html").read_text(encoding="utf-8")
    assert main(["compare", OLD, record.id, "-o", "one", "--single-file", "--format", "json"]) == Exit.OK
    captured = capsys.readouterr()
    assert json.loads(captured.out)["after"]["name"] == record.id
    assert captured.err.strip() == str(tmp_path / "one/index.html")
    assert main(["compare", "20990101T000000Z-0000", record.id]) == Exit.USAGE
