"""Traces of torch.profiler and Nsight Systems: times without counters, never 0 for what was not recorded."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli.main import main
from flashcore.errors import RecordError, UsageError
from flashcore.explain.predictions import Readings
from flashcore.model.record import Record, Source, Subject
from flashcore.plugins.imports import assemble, kernels, traces
from flashcore.plugins.imports.api import read_report
from flashcore.records import store

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
GEMM, NORM = "void cutlass::Kernel<float>(Params)", "void layer_norm<float>(float*, int)"
#: Kernel, µs, grid, registers: of a training step.
LAUNCHES = (
    (NORM, 4.0, 64, 32),
    (GEMM, 90.0, 132, 168),
    (NORM, 6.0, 64, 32),
    (GEMM, 110.0, 132, 168),
    (NORM, 1.0, 8, 32),
)


def event(name: str, us: float | None, grid: int, registers: int, **changes: Any) -> dict[str, Any]:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": 3, "registers per thread": registers,
            "shared memory": 49152, "blocks per SM": 1.0, "grid": [grid, 1, 1], "block": [256, 1, 1],
            "est. achieved occupancy %": 12}  # fmt: skip
    timed = {} if us is None else {"dur": us}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 5.0, **timed, "args": args | changes}


def torch_trace(events: Sequence[dict[str, Any]], **changes: Any) -> bytes:
    others = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 1.0, "dur": 500.0, "args": {}},
        {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": "Memcpy HtoD",
            "pid": 0,
            "tid": 7,
            "ts": 1.0,
            "dur": 700.0,
            "args": {},
        },
        {"ph": "M", "name": "process_name", "ts": 1.0, "pid": 9, "tid": 0, "args": {"name": "python"}},
    ]
    frame = {"schemaVersion": 1, "deviceProperties": [H100], "traceEvents": [*others, *events]}
    return json.dumps(frame | changes).encode()


def nsys_export(path: Path, launches: Sequence[tuple[str, float, int, int]], gpus: int = 1) -> Path:
    """The tables of ``nsys export --type sqlite`` that hold kernels, with the columns that are read and some more."""
    names = sorted({launch[0] for launch in launches})
    with closing(sqlite3.connect(path)) as database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER,
                streamId INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER,
                gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
                staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);""")
        if gpus:
            database.execute("CREATE TABLE TARGET_INFO_GPU (id, name, computeMajor, computeMinor, smCount)")
            device = [H100[key] for key in ("name", "computeMajor", "computeMinor", "numSms")]
            database.executemany(
                "INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?, ?)", [(i, *device) for i in range(gpus)]
            )
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        for name, us, grid, registers in launches:
            row = (
                1000,
                1000 + int(1e3 * us),
                0,
                7,
                names.index(name),
                0,
                registers,
                grid,
                1,
                1,
                256,
                1,
                1,
                1024,
                48128,
            )
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * len(row))})", row)
        database.commit()
    return path


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
        lambda data: gzip.compress(data)[:-9],
        lambda data: traces.SQLITE + data,
        lambda data: b"{}",
        lambda data: b'{"traceEvents": 3}',
        lambda data: data.replace(b'"grid": [132, 1, 1]', b'"grid": [132, 1]'),
        lambda data: data.replace(b'"grid": [132, 1, 1]', b'"grid": [1.5, 1, 1]'),
        lambda data: data.replace(b'"dur": 90.0', b'"dur": "90"'),
        lambda data: data.replace(b'"block"', b'"blok"'),
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
    assert facts.number("profiled_launches", Subject(fact.subject.variant, shape=fact.subject.shape)) == 2


def test_traces_are_compared_by_their_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    slower = [(name, us * (2 if name == GEMM else 1.01), grid, registers) for name, us, grid, registers in LAUNCHES]
    for number, given in enumerate((LAUNCHES, slower)):
        export = nsys_export(tmp_path / f"{number}.sqlite", given)
        assert main(["import", str(export), "--profiles", str(tmp_path / "runs")]) == 0
        runs.append(capsys.readouterr().out.strip())
    assert main(["diff", *runs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("imported")).split() == [
        "imported",
        *["1", "0", "0", "0", "0", "2"],
    ]
    assert lines[-1] == "    traced_duration  100,000 ns → 200,000 ns  worse"
    assert main(["diff", runs[0], runs[0]]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("no difference in 3 facts and times")
