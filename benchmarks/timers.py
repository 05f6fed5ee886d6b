"""What do five timers say of the same ten kernels? ``python -m benchmarks.timers`` (needs a GPU, torch and Triton).

Each kernel is timed by ``flashcore.time`` in two modes, by Triton's ``do_bench`` and ``do_bench_cudagraph``, by CUPTI's
records of torch.profiler, and by the duration that CUPTI's range profiler, like ncu, counts with cold caches. All of it
is repeated. The table has the medians (µs) and how far a timer's repetitions lie apart.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flashcore as fc
from benchmarks import raw
from flashcore.features.reports import traces
from flashcore.runner.kernel_call import require_device

Call = Callable[[], object]
REPEATS = 3
_CALLS = 20  # that torch.profiler records


def main(argv: Sequence[str] | None = None) -> int:
    return raw.main(__file__, __doc__, lambda parser: None, measure, table, argv)


def kernels() -> dict[str, Call]:
    """Name → a call of torch."""
    import torch
    from torch.nn import functional

    def tensor(*sizes: int) -> Any:
        return torch.rand(sizes, device="cuda", dtype=torch.float16)

    small, rows, query = tensor(1 << 16), tensor(4096, 4096), tensor(4, 16, 2048, 128)
    large, copy = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    square = {n: tensor(n, n) for n in (512, 2048, 8192)}
    return {
        "empty kernel": lambda: torch.cuda._sleep(0),  # type: ignore[no-untyped-call]
        "add, 128 kB": lambda: small + 1,
        **{f"gemm {n}": lambda x=x: x @ x for n, x in square.items()},  # type: ignore[misc]
        "softmax": lambda: torch.softmax(rows, -1),
        "layer norm": lambda: functional.layer_norm(rows, (4096,)),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query),
        "sum": lambda: rows.sum(-1),
        "copy, 1 GB": lambda: copy.copy_(large),
    }


def _by_flashcore(mode: Any) -> Callable[[Call], float]:
    def timed(call: Call) -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            return float(fc.time(call, mode=mode)["p50"].iloc[0])

    return timed


def _by_triton(name: str) -> Callable[[Call], float]:
    def timed(call: Call) -> float:
        import torch
        from triton import testing

        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            return 1e3 * float(getattr(testing, name)(call, return_mode="median"))

    return timed


def _by_records(call: Call) -> float:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        for _ in range(_CALLS):
            call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        record.export_chrome_trace(str(file := Path(folder, "trace.json")))
        launches = traces.launches(file.read_text(encoding="utf-8", errors="replace"))
    times = [launch.number(traces.TIME) or 0.0 for launch in launches]
    each = len(times) // _CALLS
    return statistics.median(sum(times[i : i + each]) for i in range(0, len(times), each)) / 1e3 if each else 0.0


def _by_counters(call: Call) -> float:
    facts = fc.capture(call).reset_index()
    (row,) = facts[(facts["fact"] == "ncu_duration") & facts["kernel"].isna()].to_dict("records")
    return float(row["value"]) / 1e3


TIMERS: dict[str, Callable[[Call], float]] = {
    "isolated": _by_flashcore("isolated"),
    "back to back": _by_flashcore("back_to_back"),
    "cold": _by_flashcore("cold"),
    "do_bench": _by_triton("do_bench"),
    "do_bench_cudagraph": _by_triton("do_bench_cudagraph"),
    "CUPTI records": _by_records,
    "counters, cold": _by_counters,
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Of each kernel and timer: the repetitions (µs), why there are none, and the seconds that all of them took.

    Raises:
        CapabilityError: no GPU.
    """
    require_device("cuda")
    import torch

    results: dict[str, Any] = {
        "machine": raw.machine(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    results["us"], results["failed"], results["seconds"] = {}, {}, dict.fromkeys(TIMERS, 0.0)
    for name, call in kernels().items():
        results["us"][name] = {timer: [] for timer in TIMERS}
        for _ in range(REPEATS):
            for timer, timed in TIMERS.items():
                began = time.monotonic()
                try:
                    results["us"][name][timer].append(timed(call))
                except Exception as error:  # whatever a timer cannot do
                    results["failed"][f"{name}, {timer}"] = f"{type(error).__name__}: {error}"
                results["seconds"][timer] += time.monotonic() - began
    return results


def table(results: raw.Results) -> list[str]:
    """A row per kernel: the median of each timer, and the largest difference of its repetitions."""
    lines = [f"{results['gpu']}, torch {results['torch']}, {results['machine']}; µs, median (spread)"]
    lines.append(f"{'':14}" + "".join(f"{timer:>20}" for timer in TIMERS))
    spread: dict[str, list[float]] = {timer: [] for timer in TIMERS}
    for kernel, by in results["us"].items():
        cells = []
        for timer, times in by.items():
            if not times or not (middle := statistics.median(times)) > 0:
                cells.append("none")
                continue
            spread[timer].append((max(times) - min(times)) / middle)
            cells.append(f"{middle:,.2f} ({100 * spread[timer][-1]:.1f} %)")
        lines.append(f"{kernel:14}" + "".join(f"{cell:>20}" for cell in cells))
    typical = (f"{100 * statistics.median(s):.1f} %" if s else "none" for s in spread.values())
    lines.append(f"{'median spread':14}" + "".join(f"{cell:>20}" for cell in typical))
    lines.append(f"{'seconds':14}" + "".join(f"{results['seconds'][timer]:>20.1f}" for timer in TIMERS))
    return [*lines, *(f"{where}: {why}" for where, why in results["failed"].items())]


if __name__ == "__main__":
    sys.exit(main())
