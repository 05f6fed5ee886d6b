"""Reads the JSON of benchmark programs as times: nvbench's, with its files of samples, and Google Benchmark's.

A benchmark is a variant, its axes or arguments are a shape. How the program takes a time decides the timing mode:

- *cold* is nvbench's ``nv/cold/time/gpu``: L2 is flushed before each launch, which waits behind a blocking kernel, with
  CUDA events around it (nvbench/detail/measure_cold.cuh). ``--jsonbin`` writes these samples.
- *back to back* is its ``nv/batch/time/gpu``: events around a batch of launches, by their number (measure_hot.cuh). It
  has no samples.
- *eager* is its ``nv/cpu_only/time/cpu`` and Google Benchmark's ``real_time``: the host's clock around calls, over
  their number (docs/user_guide.md). A sample is a repetition. The time of ``UseManualTime`` is the program's own; the
  benchmark's name then ends in ``/manual_time``.

Other times have no timing mode and are left out: processor time (``cpu_time``), and ``nv/cold/time/cpu``, which is a
launch with a wait for its end.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from flashcore.errors import RecordError
from flashcore.model.cause import Cause
from flashcore.model.causes import MESSAGE
from flashcore.model.groups import grouped
from flashcore.model.suite import Params
from flashcore.readers.ncu.results import Container, Metric, Report, Result

HOST, CLOCK = "host", "sm_clock"  # metrics: the machine's name; Hz while the benchmark ran
MOST = 1_000  # samples of a time; of more, each second, third … is kept
#: Attributes of a GPU → nvbench's names.
_DEVICE = {
    "display_name": "name",
    "multiprocessor_count": "number_of_sms",
    "total_memory": "global_memory_size",
    "l2_cache_size": "l2_cache_size",
}
#: The timing mode of nvbench's summaries, and the clock of its times.
_MODES = {"nv/cold": ("cold", "gpu"), "nv/batch": ("back_to_back", "gpu"), "nv/cpu_only": ("eager", "cpu")}
_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
#: An argument in the name of one of Google's benchmarks: ``/8``, ``/rows:8``, ``/min_time:0.500``.
_ARGUMENT = re.compile(r"/(?:(\w+):)?(-?\d[\w.]*)(?=/|$)")


@dataclass(frozen=True)
class TimedBenchmark(Result):
    """A benchmark with some arguments, as one process timed it.

    Args:
        parameters: the arguments by name.
        times: by timing mode, in us, and what each of them is if not the time of one call.
        why: why it has none.
    """

    parameters: Params = field(default_factory=dict)
    times: Mapping[str, tuple[Sequence[float], str]] = field(default_factory=dict)
    why: Cause | None = None

    @classmethod
    def of(
        cls, name: str, cc: tuple[int, int], metrics: Mapping[str, float | int | str | None], **more: Any
    ) -> TimedBenchmark:
        """One with these metrics, less those without a value."""
        known = {name: Metric(value) for name, value in metrics.items() if value}
        return cls(0, name, "range", (0, 0, 0), (0, 0, 0), cc, known, **more)

    @property
    def arguments(self) -> str:
        """The arguments as text; empty without any."""
        return " ".join(f"{name} {value}" for name, value in self.parameters.items())


def read(path: Path, text: str) -> Report:
    """Returns the benchmarks of a JSON file.

    Raises:
        RecordError: it is damaged, of another program, or has no benchmark; or a file of samples is cut short.
    """
    try:
        data = json.loads(text)
        benchmarks = data["benchmarks"] or ()
        if any("states" in benchmark for benchmark in benchmarks):
            devices = {device["id"]: device for device in data.get("devices") or ()}
            results = [_state(path, b["name"], s, devices) for b in benchmarks for s in b["states"] or ()]
            meta = data["meta"]
            reader, command = f"nvbench {meta['version']['nvbench']['string']}", " ".join(meta["argv"] or ())
        else:
            context = data.get("context", {})
            results = _runs(benchmarks, context.get("host_name", ""))
            reader = f"google-benchmark {context.get('library_version', '')}"
            command = context.get("executable", "")
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        expected = "expected the JSON of nvbench or Google Benchmark"
        hint = "write it again, to a file: --json FILE; --benchmark_out=FILE --benchmark_out_format=json"
        raise RecordError(f"{path.name}: {expected}; {type(error).__name__}: {error}\n  hint: {hint}") from error
    if not results:
        raise RecordError(f"{path.name}: expected benchmarks, found none\n  hint: did the filter match any?")
    return Report(path.name, tuple(results), reader=reader, container=Container(None, command=command))


def _state(path: Path, name: str, state: Mapping[str, Any], devices: Mapping[int, Mapping[str, Any]]) -> TimedBenchmark:
    """A state of nvbench: a benchmark on one point of its axes."""
    summaries = {s["tag"]: {x["name"]: x["value"] for x in s.get("data") or ()} for s in state["summaries"] or ()}

    def number(tag: str) -> float:
        return float(summaries.get(tag, {}).get("value") or 0)

    times: dict[str, tuple[Sequence[float], str]] = {}
    for root, (mode, clock) in _MODES.items():
        statistics = {kind: us for kind in ("median", "mean") if (us := 1e6 * number(f"{root}/time/{clock}/{kind}"))}
        for kind, us in [*statistics.items()][:1]:
            note = f"the {kind} of {number(f'{root}/sample_size'):,.0f} times"
            file = summaries.get(f"nv/json/bin:{root}/sample_times")
            missing = (us,), f"{note} whose file is missing" if file else note
            times[mode] = (file and _samples(path, file)) or missing
    device = devices.get(state.get("device", -1), {})
    gpu = {ours: device.get(theirs) for ours, theirs in _DEVICE.items()}
    gpu["max_gpu_frequency_khz"] = device.get("sm_default_clock_rate", 0) / 1e3
    metrics = {f"device__attribute_{name}": value for name, value in gpu.items()}
    axes = {x["name"]: int(x["value"]) if x["type"] == "int64" else x["value"] for x in state["axis_values"] or ()}
    why = MESSAGE(state.get("skip_reason") or "skipped") if state.get("is_skipped") else None
    cc = divmod(device.get("sm_version", 0) // 10, 10)
    metrics[CLOCK] = number("nv/cold/sm_clock_rate/mean")
    return TimedBenchmark.of(name, cc, metrics, parameters=axes, times=times, why=why)


def _samples(path: Path, file: Mapping[str, str]) -> tuple[Sequence[float], str] | None:
    """The samples in us; ``None`` if there is no such file. Early versions name it from their working directory.

    Raises:
        RecordError: it is cut short.
    """
    name = path.parent.joinpath(*PurePosixPath(file.get("filename", "-")).parts[-2:])
    if not name.is_file():
        return None
    data, count = name.read_bytes(), int(file["size"])
    if len(data) != 4 * count:
        expected = f"{name}: expected {count:,} samples of 4 bytes, found {len(data):,} bytes"
        raise RecordError(f"{expected}\n  hint: copy it again, with the {path.name} of the same run")
    return [1e6 * seconds for seconds in struct.unpack(f"<{count}f", data)[:: count // MOST + 1]], ""


def _runs(rows: Sequence[Mapping[str, Any]], host: str) -> list[TimedBenchmark]:
    """Google's repetitions of each benchmark; their median if the file has only aggregates."""
    results = []
    timed = [row for row in rows if not {"big_o", "rms"} & row.keys()]  # the others are of a family
    for name, of in grouped((row.get("run_name", row["name"]), row) for row in timed).items():
        runs = [row for row in of if row.get("run_type") != "aggregate"]
        for row in runs or [row for row in of if row.get("aggregate_name") == "median"] or [{}]:
            note = "the mean of its iterations" if runs else "the median of its repetitions"
            us = [row["real_time"] * _US[row.get("time_unit", "ns")]] if "real_time" in row else []
            is_lost = row.get("error_occurred") or row.get("skipped")
            message = row.get("error_message") or row.get("skip_message") or "skipped"
            arguments = {name or f"arg{i}": value for i, (name, value) in enumerate(_ARGUMENT.findall(name))}
            why = MESSAGE(message) if is_lost else None
            more = {"parameters": arguments, "times": {"eager": (us, note)}, "why": why}
            results.append(TimedBenchmark.of(_ARGUMENT.sub("", name), (0, 0), {HOST: host}, **more))
    return results
