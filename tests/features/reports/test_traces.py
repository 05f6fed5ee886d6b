"""Traces of torch.profiler and Nsight Systems: times without counters, never 0 for what was not recorded."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import RecordError, UsageError
from flashcore.explain.readings import Readings
from flashcore.features.reports import assemble, kernels, traces
from flashcore.features.reports.read import read_report
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject, Record, Source
from flashcore.records import store
from tests.support.traces import GEMM, H100, LAUNCHES, NORM, event, nsys_export, torch_trace, with_graphs


@pytest.fixture(params=["torch", "torch.gz", "nsys"])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same launches in each form."""
    if request.param == "nsys":
        return nsys_export(tmp_path / "report.sqlite", LAUNCHES, gpus=2)
    data = torch_trace([event(*launch) for launch in LAUNCHES])
    path = tmp_path / ("trace.json.gz" if request.param == "torch.gz" else "trace.json")
    path.write_bytes(gzip.compress(data) if request.param == "torch.gz" else data)
    return path


def recorded(path: Path) -> Record:
    return assemble.record_of("20260101T000000Z-0000", [read_report(path)])


def test_the_kernels_that_cost_most_come_first_with_all_their_launches(trace: Path) -> None:
    rows = kernels.rows(Readings(recorded(trace)))
    shown = [(row.name, row.launches, row.us, round(row.percent or 0, 1), row.limited_by) for row in rows]
    assert shown == [("cutlass::Kernel<float>", 2, 200.0, 94.8, None), ("layer_norm<float>", 3, 11.0, 5.2, None)]
    assert rows[1].shape.startswith("g64_b256")


def test_what_a_trace_does_not_have_is_unmeasured_and_no_time_of_ncu(trace: Path, tmp_path: Path) -> None:
    record = recorded(trace)
    folder = tmp_path / record.id
    folder.mkdir()
    store.write(record, folder)
    record = store.read(folder)
    assert (record.gpu, record.environment.gpu_arch, record.environment.gpu_sms) == (H100["name"], "sm_90", 132)
    assert {fact.source for fact in record.facts} == {Source.CUPTI} and record.environment.libraries == {}
    assert len(record.facts.named("dram_bytes")) >= 3 and not [f for f in record.facts if f.value == 0]
    for name in ("ncu_duration", "dram_bytes", "tensor_active", "bank_conflicts"):
        assert all(fact.value is None and fact.note for fact in record.facts.named(name))
    registers = {f.value for f in record.facts.named("ncu_registers")}
    assert registers == {32, 168}


def test_a_launch_without_a_time_leaves_its_kernel_unmeasured(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(torch_trace([event(GEMM, 9.0, 8, 32), event(GEMM, None, 8, 32), event(NORM, 5.0, 8, 32)]))
    first, second = kernels.rows(Readings(recorded(path)))
    assert (first.name, first.us, first.percent) == ("layer_norm<float>", 5.0, 100.0)
    assert (second.launches, second.us) == (2, None)
    assert "unmeasured" in kernels.text(Readings(recorded(path)))


def test_an_export_that_names_no_gpu_has_none(tmp_path: Path) -> None:
    record = recorded(nsys_export(tmp_path / "old.sqlite", LAUNCHES, gpus=0))
    assert record.gpu is None and record.environment.gpu_arch is None
    assert kernels.rows(Readings(record))[0].us == 200.0


OLD_GPU = "; ".join(
    ["ALTER TABLE TARGET_INFO_GPU RENAME TO TARGET_INFO_CUDA_GPU"]
    + [f"ALTER TABLE TARGET_INFO_CUDA_GPU RENAME COLUMN {new} TO {old}" for new, old in (
        ("smCount", "numMultiprocessors"), ("computeMajor", "computeCapabilityMajor"),
        ("computeMinor", "computeCapabilityMinor"))]
)  # fmt: skip
LATER = ("globalPid", "mangledName", "localMemoryTotal", "gridId", "graphNodeId", "qmdLastCtaDone", "clusterX")


@pytest.mark.parametrize(
    ("change", "gpu"),
    [
        (OLD_GPU, H100["name"]),  # Nsight Systems to 2021.1
        (
            "; ".join(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN {name} INTEGER" for name in LATER),
            H100["name"],
        ),
        ("INSERT INTO TARGET_INFO_GPU VALUES (1, 'a display', NULL, NULL, NULL)", H100["name"]),
        ("UPDATE TARGET_INFO_GPU SET computeMajor = NULL", None),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = demangledName, demangledName = NULL", H100["name"]),
    ],
)
def test_exports_of_each_schema_are_read(change: str, gpu: str | None, tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "report.sqlite", LAUNCHES)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(change)
    record = recorded(path)
    assert record.gpu == gpu and record.environment.gpu_sms == (132 if gpu else None)
    assert [(row.name, row.us) for row in kernels.rows(Readings(record))] == [
        ("cutlass::Kernel<float>", 200.0), ("layer_norm<float>", 11.0)
    ]  # fmt: skip


def test_a_launch_whose_end_or_name_is_lost_is_unmeasured_or_nameless(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "report.sqlite", LAUNCHES)
    with closing(sqlite3.connect(path)) as database:
        database.executescript("""
            CREATE TABLE all_ AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL;
            DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; ALTER TABLE all_ RENAME TO CUPTI_ACTIVITY_KIND_KERNEL;
            UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = NULL WHERE gridX = 132;
            UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 99 WHERE gridX = 8;""")
    rows = kernels.rows(Readings(recorded(path)))
    assert [(row.name, row.us) for row in rows] == [
        ("layer_norm<float>", 10.0), ("unnamed", 1.0), ("cutlass::Kernel<float>", None)
    ]  # fmt: skip


def test_an_export_without_kernels_says_how_to_trace_them(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "report.sqlite", LAUNCHES)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")  # tables are made at the first row
    with pytest.raises(RecordError, match=r"expected kernels, found none\n  hint: .*--cuda-graph-trace=node"):
        read_report(path)


def test_kernels_as_old_and_new_torch_write_them(tmp_path: Path) -> None:
    """Old ones write the category with a capital; new ones add the graph, and write what is infinite as text."""
    first, second = (event(*launch) for launch in LAUNCHES[:2])
    first["args"] |= {"External id": 5, "queued": 0, "blocks per SM": "inf", "warps per SM": "inf", "graph id": 7}
    second |= {"cat": "Kernel", "dur": 90}
    path = tmp_path / "trace.json"
    path.write_bytes(torch_trace([first, second]))
    assert [row.us for row in kernels.rows(Readings(recorded(path)))] == [90.0, 4.0]


def test_the_frame_that_torch_itself_writes(tmp_path: Path) -> None:
    profiler = pytest.importorskip("torch.profiler")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as profile, profiler.record_function("step"):
        pytest.importorskip("torch").ones(4).sum()
    path = tmp_path / "trace.json.gz"
    profile.export_chrome_trace(str(path))
    with pytest.raises(RecordError, match=r"trace.json.gz: expected kernels, found none\n  hint: .*CUDA"):
        read_report(path)
    frame = json.loads(gzip.decompress(path.read_bytes()))
    frame["traceEvents"] += [event(*launch) for launch in LAUNCHES]
    path.write_bytes(gzip.compress(json.dumps(frame).encode()))
    assert kernels.rows(Readings(recorded(path)))[0].us == 200.0  # without deviceProperties


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-40],
        lambda data: data.replace(b'"name": "python"', b'"name": "C:\\"'),  # a quote that is escaped ends nowhere
        lambda data: b"[" * 100_000,
        lambda data: b"[]",
        lambda data: traces.SQLITE + data,
        lambda data: b"{}",
        lambda data: b'{"traceEvents": 3}',
        lambda data: data.replace(b'"grid": [132, 1, 1]', b'"grid": [132, 1]'),
        lambda data: data.replace(b'"grid": [132, 1, 1]', b'"grid": [1.5, 1, 1]'),
        lambda data: data.replace(b'"dur": 90.0', b'"dur": "90"'),
        lambda data: data.replace(b'"block"', b'"blok"'),
        lambda data: data.replace(b'"dur": 90.0', b'"dur": ' + b"9" * 400),
        lambda data: data.replace(b'"dur": ', b'"dur": 1e305, "was": '),  # their sum is infinite
    ],
)
def test_a_damaged_trace_is_refused(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(spoil(torch_trace([event(*launch) for launch in LAUNCHES])))
    with pytest.raises(RecordError, match=r"trace.json: expected a trace of torch.profiler or an SQLite export"):
        read_report(path)


def test_counters_and_traces_are_not_imported_together(tmp_path: Path, sample_report: Any) -> None:
    trace = read_report(nsys_export(tmp_path / "a.sqlite", LAUNCHES))
    with pytest.raises(UsageError, match="expected traces or reports with counters, found both"):
        assemble.record_of("20260101T000000Z-0000", [trace, sample_report("app_basic")])


def test_a_case_has_the_mean_of_its_launches(tmp_path: Path) -> None:
    facts = recorded(nsys_export(tmp_path / "a.sqlite", LAUNCHES)).facts
    (fact,) = [f for f in facts.named(traces.TIME) if f.subject.kernel == GEMM]
    assert (fact.value, fact.unit) == (100_000.0, "ns")
    assert facts.number("profiled_launches", CaseSubject(fact.subject.case or Case("", ""))) == 2


def test_traces_are_compared_by_their_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    slower = [(name, us * (2 if name == GEMM else 1.01), grid, registers) for name, us, grid, registers in LAUNCHES]
    for number, given in enumerate((LAUNCHES, slower)):
        export = nsys_export(tmp_path / f"{number}.sqlite", given)
        assert main(["import", str(export), "--profiles", str(tmp_path / "runs")]) == 0
        runs.append(capsys.readouterr().out.strip())
    assert main(["compare", *runs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": 1 slower, 2 no difference")
    (case,) = (line for line in lines if line.endswith("slower, not judged"))
    assert "traced duration  100,000 ns  200,000 ns" in case
    assert main(["compare", runs[0], runs[0]]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(": 3 no difference")


# --- several GPUs ---------------------------------------------------------------------------------

A100 = {"id": 1, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108}


def of_two_models(path: Path, change: str = "") -> Path:
    """An export of two GPU models: the process's GPU 0 took 5 µs, its GPU 1 took 9."""
    nsys_export(path, [(GEMM, 5.0, 132, 168), (GEMM, 9.0, 132, 168)])
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"""
            ALTER TABLE TARGET_INFO_GPU ADD COLUMN cuDevice INTEGER;
            ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN globalPid INTEGER;
            UPDATE TARGET_INFO_GPU SET cuDevice = 0;
            INSERT INTO TARGET_INFO_GPU VALUES (1, '{A100["name"]}', 8, 0, 108, 1);
            UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = ("end" > 6000 + start), globalPid = 77 << 24;
            {change}""")
    return path


def runs_of(*paths: Path) -> dict[str | None, list[tuple[str, int, float | None]]]:
    """The rows of the run of each GPU model."""
    parts = assemble.by_gpu([read_report(path) for path in paths])
    records = [assemble.record_of(f"20260101T000000Z-000{n}", part) for n, part in enumerate(parts)]
    return {r.gpu: [(row.name, row.launches, row.us) for row in kernels.rows(Readings(r))] for r in records}


NAME = "cutlass::Kernel<float>"
TABLE = "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);"


@pytest.mark.parametrize(
    ("change", "h100", "a100"),
    [
        ("", 5.0, 9.0),
        ("UPDATE TARGET_INFO_GPU SET id = 3 - id;", 5.0, 9.0),  # the driver's numbers are not CUDA's
        ("UPDATE TARGET_INFO_GPU SET cuDevice = 1 - cuDevice;", 9.0, 5.0),
        ("ALTER TABLE TARGET_INFO_GPU DROP COLUMN cuDevice;", 5.0, 9.0),
        (f"{TABLE} INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 77), (0, 1, 77);", 9.0, 5.0),
        (f"{TABLE} INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 77), (1, 1, 77), (1, 0, 8);", 5.0, 9.0),
        (f"{TABLE} INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, NULL), (0, 1, NULL);", 9.0, 5.0),
    ],
)
def test_each_gpu_model_has_a_run_of_its_own(change: str, h100: float, a100: float, tmp_path: Path) -> None:
    expected = {H100["name"]: [(NAME, 1, h100)], A100["name"]: [(NAME, 1, a100)]}
    assert runs_of(of_two_models(tmp_path / "two.sqlite", change)) == expected


def test_two_processes_may_call_two_models_by_one_number(tmp_path: Path) -> None:
    change = f"""{TABLE} INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 77), (1, 0, 78);
        UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 0, globalPid = (77 + deviceId) << 24;"""
    path = of_two_models(tmp_path / "two.sqlite", change)
    assert runs_of(path) == {H100["name"]: [(NAME, 1, 5.0)], A100["name"]: [(NAME, 1, 9.0)]}


def test_launches_on_two_gpus_of_one_model_are_averaged(tmp_path: Path) -> None:
    path = of_two_models(
        tmp_path / "two.sqlite", "UPDATE TARGET_INFO_GPU SET name = 'H', smCount = 9, computeMajor = 9;"
    )
    assert runs_of(path) == {"H": [(NAME, 2, 14.0)]}


def test_torch_traces_of_two_models_are_two_runs(tmp_path: Path) -> None:
    events = [event(GEMM, 5.0, 132, 168), event(GEMM, 9.0, 132, 168, device=1), event(NORM, 1.0, 8, 32, device=1)]
    (tmp_path / "trace.json").write_bytes(torch_trace(events, deviceProperties=[H100, A100]))
    assert runs_of(tmp_path / "trace.json") == {
        H100["name"]: [(NAME, 1, 5.0)], A100["name"]: [(NAME, 1, 9.0), ("layer_norm<float>", 1, 1.0)]
    }  # fmt: skip


def test_one_record_of_two_models_is_refused(tmp_path: Path) -> None:
    report = read_report(of_two_models(tmp_path / "two.sqlite"))
    with pytest.raises(UsageError, match=r"found NVIDIA A100-SXM4-80GB \(8.0\), NVIDIA H100 80GB HBM3 \(9.0\)"):
        assemble.record_of("20260101T000000Z-0000", [report])


def test_traces_of_several_processes_are_one_run(tmp_path: Path) -> None:
    for rank, us in enumerate((10.0, 20.0)):
        (tmp_path / f"{rank}.json").write_bytes(torch_trace([event(GEMM, us, 132, 168)] * (rank + 1)))
    assert runs_of(tmp_path / "0.json", tmp_path / "1.json") == {H100["name"]: [(NAME, 3, 50.0)]}


def test_code_of_one_name_and_configuration_has_no_registers_in_common(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(torch_trace([event(GEMM, 10.0, 132, 168), event(GEMM, 20.0, 132, 90)]))
    record = recorded(tmp_path / "trace.json")
    (row,) = kernels.rows(Readings(record))
    assert (row.launches, row.us) == (2, 30.0)
    (registers,) = {f.detail for f in record.facts.named("ncu_registers")}
    assert {f.value for f in record.facts.named("ncu_registers")} == {None} and registers
    folder = tmp_path / record.id
    folder.mkdir()
    store.write(record, folder)
    assert kernels.rows(Readings(store.read(folder)))[0].us == 30.0


# --- graphs ---------------------------------------------------------------------------------------


GRAPHS = [("graph_4", 2, 500.0), ("cutlass::Kernel<float>", 2, 200.0), ("layer_norm<float>", 3, 11.0)]


def test_graphs_traced_as_a_whole_are_rows_beside_kernels(tmp_path: Path) -> None:
    path = with_graphs(tmp_path / "graphs.sqlite")
    assert runs_of(path) == {H100["name"]: [*GRAPHS, ("graph_5", 1, 1.0), ("graph_6", 1, None)]}
    assert any("--cuda-graph-trace=node" in note for note in read_report(path).notes)
    shapes = {f.subject.shape for f in recorded(path).facts if f.subject.kernel == "graph_4"}
    assert shapes == {"graph"}


def test_an_export_of_graphs_alone_is_read(tmp_path: Path) -> None:
    path = with_graphs(tmp_path / "graphs.sqlite", ())
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    assert [name for (rows,) in [runs_of(path).values()] for name, *_ in rows] == ["graph_4", "graph_5", "graph_6"]


# --- what is no JSON ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("valid", "written"),
    [
        (rb"torch\\cuda\\__init__.py(219): _lazy_init", rb"torch\cuda\__init__.py(219): _lazy_init"),
        (rb"C:\\users\\new\\x", rb"C:\users\new\x"),
        (rb"\\\\server\\share", rb"\\server\share"),
        (rb"a\u0007b\tc\u001bd", b"a\x07b\tc\x1bd"),
        (rb"caf\u00e9", b"caf\xe9"),
        (rb"say \"C:\\dir\" again", rb"say \"C:\dir\" again"),
    ],
)
def test_names_that_torch_does_not_escape_are_read(valid: bytes, written: bytes, tmp_path: Path) -> None:
    """The rest of a trace is the same as with valid names."""
    rows = []
    for name in (valid, written):
        data = torch_trace([event(*launch) for launch in LAUNCHES]).replace(b"aten::mm", name)
        (tmp_path / "trace.json").write_bytes(data)
        rows.append(kernels.rows(Readings(recorded(tmp_path / "trace.json"))))
    assert rows[0] == rows[1] and rows[0][0].us == 200.0


@pytest.mark.parametrize("word", [b"inf", b"-inf", b"nan", b"-nan", b"N/A", b"NaN", b"Infinity"])
def test_numbers_that_json_does_not_have_are_read(word: bytes, tmp_path: Path) -> None:
    data = torch_trace([event(*launch) for launch in LAUNCHES]).replace(
        b'"blocks per SM": 1.0', b'"blocks per SM": ' + word
    )
    (tmp_path / "trace.json").write_bytes(data.replace(b"python", rb"C:\python"))
    assert kernels.rows(Readings(recorded(tmp_path / "trace.json")))[0].us == 200.0


def test_a_refused_trace_has_a_hint(tmp_path: Path) -> None:
    """Such as one whose names hold quotes, or one of another vendor's GPU, whose launches have no grid."""
    for data in (
        torch_trace([event(*LAUNCHES[0])]).replace(b"aten::mm", b'{"device": "cpu"}(12): run'),
        torch_trace([event(*LAUNCHES[0])]).replace(b'"grid": [64, 1, 1], "block": [256, 1, 1], ', b""),
    ):
        (tmp_path / "trace.json").write_bytes(data)
        with pytest.raises(RecordError, match="\n  hint: "):
            read_report(tmp_path / "trace.json")


def test_a_gpu_of_rocm_has_no_compute_capability_of_cuda(tmp_path: Path) -> None:
    """Its traces give one, and neither registers nor shared memory."""
    mi210 = {"id": 0, "name": "AMD Instinct MI210", "computeMajor": 9, "computeMinor": 0, "warpSize": 64, "numSms": 104}
    launch = event(*LAUNCHES[0])
    launch["args"] = {"device": 0, "stream": 0, "kind": "Dispatch Kernel", "grid": [64, 1, 1], "block": [256, 1, 1]}
    (tmp_path / "trace.json").write_bytes(torch_trace([launch], deviceProperties=[mi210]))
    record = recorded(tmp_path / "trace.json")
    assert (record.gpu, record.environment.gpu_arch) == ("AMD Instinct MI210", None)
    assert kernels.rows(Readings(record))[0].us == 4.0
