"""JSON of nvbench and Google Benchmark as times: with samples, without, and of what was not timed."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore.cli.main import main
from flashcore.errors import Exit, RecordError, UsageError
from flashcore.explain.compare_records import compare
from flashcore.explain.times import speedup
from flashcore.features.reports.assemble import by_gpu, record_of
from flashcore.features.reports.read import read_report
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Record, Source, Time
from flashcore.records import store

H200 = {"id": 0, "name": "NVIDIA H200", "sm_version": 900, "number_of_sms": 132, "sm_default_clock_rate": 1980000000}
US = (100.0, 104.0, 96.0, 108.0)


def summary(tag: str, **values: object) -> dict[str, Any]:
    """A summary as nvbench writes it: numbers are text."""
    return {"tag": tag, "data": [{"name": n, "type": "string", "value": str(x)} for n, x in values.items()]}


def state(summaries: Sequence[Mapping[str, Any]] | None, rows: int = 4096, **more: Any) -> dict[str, Any]:
    axes = [{"name": "Rows", "type": "int64", "value": str(rows)}, {"name": "T", "type": "string", "value": "F32"}]
    return {"device": 0, "axis_values": axes, "summaries": summaries, "is_skipped": False} | more


def timed(us: float, *more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The summaries of a benchmark that took ``us`` cold, without a file of samples."""
    clock = summary("nv/cold/sm_clock_rate/mean", value=1.755e9)
    size, mean = summary("nv/cold/sample_size", value=4), summary("nv/cold/time/gpu/mean", value=us / 1e6)
    return [size, mean, clock, summary("nv/batch/time/gpu/mean", value=us / 2e6), *more]


def nvbench(path: Path, states: Sequence[Mapping[str, Any]], devices: Sequence[Mapping[str, Any]] = (H200,)) -> Path:
    meta = {"argv": ["bench", "--jsonbin", path.name], "version": {"nvbench": {"string": "0.2.0"}}}
    benchmarks = [{"name": "row_sum", "states": states}, {"name": "row_max", "states": None}]
    path.write_text(json.dumps({"meta": meta, "devices": devices, "benchmarks": benchmarks}))
    return path


def with_samples(path: Path, us: Sequence[float] = US, size: int = 0, named: str = "") -> Path:
    """A file of nvbench, with its samples."""
    folder = path.with_name(f"{path.name}-bin")
    folder.mkdir()
    (folder / "0.bin").write_bytes(struct.pack(f"<{len(us)}f", *(x / 1e6 for x in us)))
    named = named or f"{folder.name}/0.bin"
    file = summary("nv/json/bin:nv/cold/sample_times", filename=named, size=size or len(us))
    return nvbench(path, [state(timed(102.0, file))])


def google(path: Path, rows: Sequence[Mapping[str, Any]], host: str = "builder") -> Path:
    context = {"host_name": host, "executable": "./bench", "library_version": "v1.9.4", "json_schema_version": 1}
    path.write_text(json.dumps({"context": context, "benchmarks": rows}))
    return path


def row(name: str, time: float, unit: str = "ns", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "real_time": time,
        "cpu_time": 1,
        "time_unit": unit,
    } | more


def imported(*files: Path) -> Record:
    return record_of("20260101T000000Z-0000", [read_report(file) for file in files])


def time_of(record: Record, variant: str, shape: str, mode: str) -> Time:
    return record.time(CaseSubject(Case(variant, shape)), mode)


def note(record: Record, variant: str, shape: str, mode: str) -> str:
    fact = record.facts.get(f"{mode}_p50", CaseSubject(Case(variant, shape)))
    return fact.note if fact else "no such time"


@pytest.mark.parametrize("named", ["", "/home/other/out/a.json-bin/0.bin"], ids=["beside", "by another folder"])
def test_samples_of_nvbench_are_the_times_of_the_cold_mode(named: str, tmp_path: Path) -> None:
    record = imported(with_samples(tmp_path / "a.json", named=named))
    time = time_of(record, "row_sum", "rows_4096_t_f32", "cold")
    assert time.us == pytest.approx(102.0) and time.samples == pytest.approx(US)
    assert record.suite.shapes["rows_4096_t_f32"].params == {"Rows": 4096, "T": "F32"}
    assert {f.source for f in record.facts.named("cold_p50")} == {Source.EVENTS}
    assert (record.gpu, record.gpu_arch, record.environment.gpu_sms) == ("NVIDIA H200", "sm_90", 132)
    assert record.environment.gpu_sm_clock_mhz == 1980 and record.environment.libraries == {"nvbench": "0.2.0"}
    assert record.facts.number("kernel_sm_clock", CaseSubject(Case("row_sum", "rows_4096_t_f32"))) == 1755


def test_a_batch_has_one_value_and_no_samples(tmp_path: Path) -> None:
    record = imported(with_samples(tmp_path / "a.json"))
    time = time_of(record, "row_sum", "rows_4096_t_f32", "back_to_back")
    assert time.us == pytest.approx(51.0) and not time.samples
    assert "without samples" in note(record, "row_sum", "rows_4096_t_f32", "back_to_back")


def test_a_median_is_preferred_to_a_mean_and_a_lost_file_of_samples_is_told(tmp_path: Path) -> None:
    median = summary("nv/cold/time/gpu/median", value=90e-6)
    lost = summary("nv/json/bin:nv/cold/sample_times", filename="a.json-bin/7.bin", size=4)
    record = imported(nvbench(tmp_path / "a.json", [state(timed(102.0, median, lost))]))
    assert time_of(record, "row_sum", "rows_4096_t_f32", "cold").us == pytest.approx(90)
    assert "missing" in note(record, "row_sum", "rows_4096_t_f32", "cold")


def test_skipped_states_are_unmeasured_with_their_reason(tmp_path: Path) -> None:
    skipped = state(None, rows=1, is_skipped=True, skip_reason="Deadlock: timed out")
    record = imported(nvbench(tmp_path / "a.json", [skipped, state([], rows=2), state(timed(0.0), rows=3)]))
    times = [time_of(record, "row_sum", f"rows_{n}_t_f32", "cold") for n in (1, 2, 3)]
    assert [time.us for time in times] == [None] * 3
    assert times[0].cause and times[0].cause.text == "Deadlock: timed out"
    assert not [fact for fact in record.facts if fact.value == 0]


def test_each_gpu_model_is_a_record_and_times_of_several_files_are_together(tmp_path: Path) -> None:
    l4 = {"id": 1, "name": "NVIDIA L4", "sm_version": 890}
    both = read_report(nvbench(tmp_path / "a.json", [state(timed(100)), state(timed(300), device=1)], [H200, l4]))
    assert {record_of("x", part).gpu for part in by_gpu([both])} == {"NVIDIA H200", "NVIDIA L4"}
    record = imported(*(nvbench(tmp_path / f"{us}.json", [state(timed(us))]) for us in (100, 104)))
    time = time_of(record, "row_sum", "rows_4096_t_f32", "cold")
    assert time.us == pytest.approx(102) and time.samples == pytest.approx((100, 104))


def test_of_many_samples_at_most_a_thousand_are_kept(tmp_path: Path) -> None:
    record = imported(with_samples(tmp_path / "a.json", [50.0, 70.0] * 4999 + [90.0]))
    assert len(time_of(record, "row_sum", "rows_4096_t_f32", "cold").samples) == 1000


def test_repetitions_of_google_are_samples_in_every_unit(tmp_path: Path) -> None:
    rows = [row("BM_Copy/1024/threads:4", 2000 + i, repetition_index=i) for i in range(3)]
    rows += [row("BM_Copy/1024/threads:4", 2001, run_type="aggregate", aggregate_name="median")]
    rows += [row("Fix/Sort<int>/rows:8/-1/manual_time", 3, "ms"), row("Fix/Sort<int>/rows:8/1/manual_time", 4, "ms")]
    record = imported(google(tmp_path / "g.json", rows))
    time = time_of(record, "bm_copy", "arg0_1024_threads_4", "eager")
    assert time.us == pytest.approx(2.001) and time.samples == pytest.approx((2.0, 2.001, 2.002))
    assert {f.source for f in record.facts} == {Source.HOST} and record.environment.host == "builder"
    assert record.gpu is None and {*record.suite.variants} == {"bm_copy", "fix_sort_int_manual_time"}
    single = {shape.params["arg1"]: name for name, shape in record.suite.shapes.items() if "arg1" in shape.params}
    assert [time_of(record, "fix_sort_int_manual_time", single[n], "eager").us for n in ("-1", "1")] == [3000, 4000]
    assert "without samples" in note(record, "fix_sort_int_manual_time", single["1"], "eager")


def test_the_complexity_of_a_family_is_no_benchmark(tmp_path: Path) -> None:
    family = {"run_name": "BM_A", "run_type": "aggregate", "time_unit": "ns"}
    rows = [row("BM_A/8", 5), {"name": "BM_A_BigO", "big_o": "N", "real_coefficient": 1.0} | family]
    assert {
        *imported(google(tmp_path / "g.json", [*rows, {"name": "BM_A_RMS", "rms": 0.1} | family])).suite.shapes
    } == {"arg0_8"}


def test_of_aggregates_alone_the_median_is_the_time(tmp_path: Path) -> None:
    names = {"mean": 9.0, "median": 5.0, "stddev": 1.0}
    rows = [row("BM_A", us, "us", run_type="aggregate", aggregate_name=name) for name, us in names.items()]
    record = imported(google(tmp_path / "g.json", [*rows, row("BM_B", 1, run_type="aggregate", aggregate_name="cv")]))
    assert time_of(record, "bm_a", "default", "eager").us == 5 and not record.raw_samples
    assert time_of(record, "bm_b", "default", "eager").us is None


@pytest.mark.parametrize(
    "why", [{"error_occurred": True, "error_message": "no GPU"}, {"skipped": True, "skip_message": "no GPU"}]
)
def test_errors_of_google_make_the_case_unmeasured(why: Mapping[str, Any], tmp_path: Path) -> None:
    rows = [row("BM_A", 5), row("BM_A", 0, **why), row("BM_B", 5)]
    record = imported(google(tmp_path / "g.json", rows))
    time = time_of(record, "bm_a", "default", "eager")
    assert time.us is None and time.cause and time.cause.text == "no GPU"
    assert time_of(record, "bm_b", "default", "eager").us == pytest.approx(5e-3)


def test_benchmarks_of_one_file_ran_one_after_the_other_so_their_ratio_has_no_interval(tmp_path: Path) -> None:
    rows = [row(name, 100 + i) for name in ("BM_A", "BM_B") for i in range(5)]
    record = imported(google(tmp_path / "g.json", rows))
    ratio = speedup(*(time_of(record, name, "default", "eager") for name in ("bm_a", "bm_b")))
    assert ratio and ratio.value == 1 and ratio.ends is None and ratio.cause


def test_times_of_google_compare_on_one_host_only(tmp_path: Path) -> None:
    here, there = (google(tmp_path / f"{host}.json", [row("BM_A", 100)], host) for host in ("here", "there"))
    assert not compare(imported(here), imported(here)).incomparable
    assert compare(imported(here), imported(there)).incomparable


@pytest.mark.parametrize(
    ("us", "effect", "code"),
    [
        (110, "5", Exit.FAILED),
        (110, "11", Exit.OK),
        (90, "0", Exit.OK),
        (None, "5", Exit.UNMEASURED),
        (110, "-1", Exit.USAGE),
        (110, "inf", Exit.USAGE),
        (110, "nan", Exit.USAGE),
    ],
)
def test_the_exit_code_of_compare_is_that_of_a_limit(us: float | None, effect: str, code: int, tmp_path: Path) -> None:
    after = state(timed(us)) if us else state([], is_skipped=True, skip_reason="none")
    a, b = (nvbench(tmp_path / f"{n}.json", [s]) for n, s in (("a", state(timed(100))), ("b", after)))
    assert main(["compare", str(a), str(b), "--effect", effect]) == code
    if code != Exit.USAGE:
        assert main(["compare", str(a), str(b)]) == Exit.OK


@pytest.mark.parametrize(
    ("tag", "seconds", "code"),
    [
        ("nv/batch", 65e-6, Exit.FAILED),  # 30 % longer, while the cold time halves
        ("nv/batch", 51e-6, Exit.OK),
        ("nv/cold", 0.0, Exit.UNMEASURED),
        ("nv/cold", float("nan"), Exit.UNMEASURED),
        ("nv/batch", 0.0, Exit.UNMEASURED),
    ],
)
def test_the_limit_of_compare_is_on_each_mode(tag: str, seconds: float, code: int, tmp_path: Path) -> None:
    """Another mode's time neither hides a slower one nor stands in for one that is gone."""
    after = timed(50, summary("nv/batch/time/gpu/mean", value=50e-6), summary(f"{tag}/time/gpu/mean", value=seconds))
    a, b = (nvbench(tmp_path / f"{n}.json", [state(s)]) for n, s in (("a", timed(100)), ("b", after)))
    assert main(["compare", str(a), str(b), "--effect", "5"]) == code


def test_import_lists_the_times_and_the_gate_limits_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, profiles = with_samples(tmp_path / "a.json"), str(tmp_path / "profiles")
    assert main(["import", str(file), "--profiles", profiles, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    cold, batch = document["benchmarks"]
    assert (cold["mode"], cold["samples"], batch["mode"], batch["samples"]) == ("cold", 4, "back_to_back", None)
    read = store.read(Path(document["run"]))
    assert read.samples and time_of(read, "row_sum", "rows_4096_t_f32", "cold").us == pytest.approx(102)
    for limit, code in ((200, Exit.OK), (50, Exit.FAILED)):
        (tmp_path / "budgets.toml").write_text(f'[[budget]]\nname = "cold"\nfact = "cold_p50"\nmax = {limit}\n')
        assert main(["gate", document["run"], "--budgets", str(tmp_path / "budgets.toml")]) == code
    assert main(["report", document["run"], "-o", str(tmp_path / "out")]) == 0
    assert "102" in (tmp_path / "out" / "index.html").read_text()
    assert main(["report", document["run"], "--format", "md"]) == 0
    frame = fc.import_report(file).facts_frame()
    assert len(frame) == len(read.facts)


def test_a_report_of_times_of_the_host_has_its_pages(tmp_path: Path) -> None:
    file = google(tmp_path / "g.json", [row("BM_A/8", 100 + i) for i in range(3)])
    assert main(["import", str(file), "--profiles", str(tmp_path / "profiles")]) == 0
    (run,) = (tmp_path / "profiles").iterdir()
    assert main(["report", str(run), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "variant" / "bm_a.html").is_file()


@pytest.mark.parametrize(
    "text",
    [
        '{"context": {}, "benchmarks": []}',
        '{"benchmarks": [{"name": "a", "states": [{}]}]}',
        '{"context": {}, "benchmarks": [{"name": "a", "real_time": 1, "time_unit": "fortnight"}]}',
        '{"benchmarks": {"a": 1}}',
        '{"context": {}, "benchmarks": [{"name": "a", "real_time": 1' + "0" * 400 + "}]}",
        '{"context": {}, "benchmarks": [{"name": "a", "real_',
    ],
)
def test_other_and_damaged_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"a\.json: expected"):
        read_report(path)


def test_samples_cut_short_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"expected 5 samples of 4 bytes, found 16 bytes"):
        read_report(with_samples(tmp_path / "a.json", size=5))


def test_benchmarks_and_traces_are_no_one_record(tmp_path: Path) -> None:
    from tests.support.traces import LAUNCHES, event, torch_trace

    trace = tmp_path / "trace.json"
    trace.write_bytes(torch_trace([event(*launch) for launch in LAUNCHES]))
    with pytest.raises(UsageError):
        imported(google(tmp_path / "g.json", [row("BM_A", 1)]), trace)
