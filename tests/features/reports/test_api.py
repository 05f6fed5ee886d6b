"""Counters of functions in the present process. A stand-in for torch's profiler and CUPTI's says what was launched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from flashcore.errors import CapabilityError, FlashcoreError, UsageError
from flashcore.features.reports import api

DEVICE = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
COUNTED = {
    "gpu__time_duration.sum": 4000.0, "dram__bytes_read.sum": 4096.0, "dram__bytes_write.sum": 0.0,
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": 90.0,
}  # fmt: skip


class Gpu:
    """What the functions launch, and how often they were called in a pass of CUPTI's or while they were recorded."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.lacks: CapabilityError | None = None

    def launch(self, *kernels: str) -> None:
        self.calls.append([*kernels])

    def profile(self, **_: object) -> Gpu:
        return self

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.recorded = self.calls[-1]

    def export_chrome_trace(self, file: str) -> None:
        kernels = [
            {"cat": "kernel", "name": name, "ts": 10.0 - i, "dur": 3.5,
             "args": {"device": 0, "correlation": 7 + i, "grid": [264, 1, 1], "block": [128, 1, 1],
                      "registers per thread": 40, "shared memory": 1024}}
            for i, name in enumerate(self.recorded)
        ]  # fmt: skip
        events = [*reversed(kernels), {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}]
        Path(file).write_text(json.dumps({"deviceProperties": [DEVICE], "traceEvents": events}), encoding="utf-8")

    def counters_of(self, metrics: Sequence[str], device: int) -> Gpu:
        if self.lacks:
            raise self.lacks
        self.refused = {m: "CUPTI has no such metric" for m in metrics if m.startswith("launch__")}
        return self

    def of(self, load: Callable[[], object], call: Callable[[], object], most: int) -> list[dict[str, float]]:
        for _ in range(2):
            load()
            call()
        return [dict(COUNTED) for _ in self.calls[-1]]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    torch = pytest.importorskip("torch")
    stand_in = Gpu()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr("torch.profiler.profile", stand_in.profile)
    monkeypatch.setattr(api, "counters_of", stand_in.counters_of)
    return stand_in


def values(frame: Any, fact: str) -> list[tuple[Any, ...]]:
    """Kernel, launch and value of each fact of that name."""
    rows = frame.reset_index()
    rows = rows[rows["fact"] == fact].astype(object).where(lambda r: r.notna(), None)
    return [*zip(rows["kernel"], rows["launch"], rows["value"], strict=True)]


def test_a_call_has_the_facts_of_each_kernel_and_of_each_launch_in_order(gpu: Gpu) -> None:
    frame = fc.capture(lambda: gpu.launch("void f<1>(int)", "g(float*)", "void f<1>(int)"))
    assert values(frame, "kernel_launches") == [(None, None, 3.0)]
    durations = [(None, None, 12000.0), ("f", None, 8000.0), ("g", None, 4000.0), ("f", 0, 4000.0),
                 ("f", 2, 4000.0)]  # fmt: skip
    assert values(frame, "ncu_duration") == durations
    assert values(frame, "ncu_registers")[1:3] == [("f", None, 40.0), ("g", None, 40.0)]
    assert values(frame, "ncu_grid_size")[0] == (None, None, 264.0)
    assert {*frame["source"]} == {"cupti"}


def test_what_cupti_cannot_count_is_unmeasured_with_the_way_to_measure_it(gpu: Gpu) -> None:
    frame = fc.capture(lambda: gpu.launch("f"))
    (row,) = frame[(frame["fact"] == "waves_per_sm") & frame.index.get_level_values("kernel").isna()].to_dict("records")
    assert row["value"] != row["value"] and "CUPTI has no such metric; flashcore capture -- python" in row["note"]


def test_it_is_warmed_up_recorded_and_called_once_a_pass(gpu: Gpu) -> None:
    fc.capture(lambda: gpu.launch("f"))
    assert len(gpu.calls) == 3 + 1 + 2


def test_counters_print_the_first_limiter(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    def copy() -> None:
        gpu.launch("copy_kernel")

    frame = fc.counters(copy)
    assert capsys.readouterr().out == "copy: 1 kernel, 4.00 µs, cold: DRAM busy 90 %\n"
    assert values(frame, "dram_bytes")[0] == (None, None, 4096.0)


def test_a_sweep_tells_a_config_that_fails_and_has_the_others(gpu: Gpu) -> None:
    def work(n: int, *more: int) -> None:
        if n == 2:
            raise ValueError("two is too many")
        gpu.launch(*["f"] * n)

    frame = fc.sweep(work, [{"n": 1}, 2, (3, 8), [0]]).reset_index()
    rows = frame[(frame["fact"] == "kernel_launches") & frame["kernel"].isna()]
    assert [*rows["n"]] == [1, 2, 3, 0] and [*rows["value"].fillna(-1)] == [1.0, -1.0, 3.0, -1.0]
    notes = [*rows["note"]]
    assert "ValueError: two is too many" in notes[1] and "found 0 kernels" in notes[3] and rows["more0"].iloc[2] == 8


@pytest.mark.parametrize(("config", "why"), [((1, 2), "too many positional"), ({"m": 1}, "missing"), ((), "missing")])
def test_a_config_that_the_function_does_not_take_is_refused_at_once(config: Any, why: str) -> None:
    def work(n: int) -> None: ...

    with pytest.raises(UsageError, match=rf"expected arguments of work\(n.*{why}"):
        fc.sweep(work, [(1,), config])


@pytest.mark.parametrize("name", ["shape", "variant", "value", "unit", "kernel", "note", "launch", "fact"])
def test_an_argument_of_a_columns_name_is_refused_before_anything_is_measured(gpu: Gpu, name: str) -> None:
    def work(**_: int) -> None:
        gpu.launch("f")

    with pytest.raises(UsageError, match=f"expected arguments of other names than a frame's columns, found {name}$"):
        fc.sweep(work, [{"n": 1}, {name: 2}])
    assert not gpu.calls


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: fc.sweep(3, [1]), "expected a function, found 3"),
        (lambda: fc.sweep(print, 3), "expected a list of configs, found 3"),
        (lambda: fc.capture([print]), r"expected a function, found \[<"),
        (lambda: fc.counters(None), "expected a function, found None"),
        (lambda: fc.import_report(), "expected a report, found none"),
        (lambda: fc.import_report(["a.csv"]), r"expected a report, found \['a.csv'\]"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_a_hint(call: Callable[[], object], found: str) -> None:
    with pytest.raises(UsageError, match=rf"{found}\S*.*\n  hint: fc\."):
        call()


def test_a_decorated_function_gives_the_frame_and_is_itself_within_a_capture(gpu: Gpu) -> None:
    @fc.captured  # type: ignore[untyped-decorator]
    def inner(n: int) -> int:
        gpu.launch(*["f"] * n)
        return n

    assert values(inner(2), "kernel_launches") == [(None, None, 2.0)]
    assert values(fc.capture(lambda: inner(3) + 1), "kernel_launches") == [(None, None, 3.0)]


@pytest.mark.parametrize(
    ("work", "error", "found"),
    [
        (lambda gpu: gpu.launch(), UsageError, "found 0 kernels"),
        (lambda gpu: gpu.launch(*["f"] * 1001), UsageError, "found 1,001 kernels"),
        (lambda gpu: gpu.launch(*["f"] * (3 - (len(gpu.calls) > 3))), FlashcoreError, "found 3 recorded and 2 counted"),
        (lambda gpu: fc.capture(gpu.launch), UsageError, "found one within"),
        (lambda gpu: 1 // 0, ZeroDivisionError, "division"),
    ],
)
def test_a_call_that_cannot_be_counted_says_why_and_the_next_one_can(
    gpu: Gpu, work: Callable[[Gpu], object], error: type[Exception], found: str
) -> None:
    with pytest.raises(error, match=re.escape(found)):
        fc.capture(work, gpu)
    assert values(fc.capture(gpu.launch, "f"), "kernel_launches") == [(None, None, 1.0)]


def test_without_permission_nothing_is_counted(gpu: Gpu) -> None:
    gpu.lacks = CapabilityError("no permission", "run as root")
    for attempt in (fc.capture, lambda f: fc.sweep(f, [("f",)])):
        with pytest.raises(CapabilityError, match="no permission"):
            attempt(lambda *_: gpu.launch("f"))


def test_without_a_gpu_the_error_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CapabilityError, match="no CUDA GPU"):
        fc.capture(print)


@pytest.mark.gpu(process=True)
def test_on_a_gpu_functions_are_counted_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")

    def scale(n: int) -> Any:
        return torch.ones(n, device="cuda") * 2

    frame = fc.sweep(scale, [{"n": n} for n in (1024, 1 << 24)])
    assert values(frame, "kernel_launches") == [(None, None, 2.0)] * 2
    large = frame[frame["n"] == 1 << 24]
    assert values(large, "dram_read_bytes")[0][2] > 0.9 * 4 * (1 << 24)
    assert {kernel for kernel, _, _ in values(large, "ncu_duration")} > {None}
    counted = fc.counters(scale, 1 << 24)
    assert counted["value"].notna().sum() > 100 and "scale: 2 kernels, " in capsys.readouterr().out


@pytest.mark.gpu(process=True)
def test_on_a_gpu_calls_without_kernels_and_within_others_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(UsageError, match="found 0 kernels"):
        fc.capture(lambda: None)
    with pytest.raises(UsageError, match="found one within"):
        fc.capture(lambda: fc.capture(torch.ones, 5, device="cuda"))
