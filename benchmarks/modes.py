"""The timing modes on kernels of known duration: ``python -m benchmarks.modes`` (needs a GPU of sm_90 or newer).

Kernels of a known length are timed as the bench stage times variants, in the same rounds: plain ones that spin, each
twice, and their programmatic twins, which spin as long but let the kernel after them start early. Accepted is:

1. *Slope*: isolated time over the spin's own, at the SM clock that NVML shows meanwhile, is 1 within 1 %.
2. *Twins*: a programmatic launch is never more than 0.05 us faster than its plain form when it is isolated.
3. *A/A*: two copies of one kernel differ by at most 1 %.

Exit code 0 if all three hold, 1 if not, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import raw
from flashcore.errors import CapabilityError, Exit
from flashcore.machine import toolchain
from flashcore.machine.gpu import Gpu
from flashcore.machine.gpu_state import Watch
from flashcore.stages.bench.interleave import Turns, distributions, sample
from flashcore.stages.bench.statistics import StopRule, percentiles
from flashcore.stages.bench.timing import Timed, Timer

#: About 0.5, 1, 4 and 20 us.
SPINS = (1_000, 2_000, 8_000, 40_000)
BLOCKS = 128
SLOPE, TWIN_US, SAME = 0.01, 0.05, 0.01
#: Medians of one kernel differ by up to this much: A/A of 1,000 cycles gives 2 to 6 ns on an H200.
REPEATS_US = 0.01
TIMING_MODES = ("isolated", "back_to_back", "cold")

#: Spins `cycles` in all; from `early` on the next kernel may start, and what came before is waited for.
_TWIN = b"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry twin(.param .u64 cycles, .param .u64 early)
{
    .reg .b64 %rd<7>;
    .reg .pred %p;
    griddepcontrol.launch_dependents;
    ld.param.u64 %rd1, [cycles];
    ld.param.u64 %rd5, [early];
    mov.u64 %rd2, %clock64;
before:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p, %rd4, %rd5;
    @%p bra before;
    griddepcontrol.wait;
    sub.u64 %rd6, %rd1, %rd5;
    mov.u64 %rd2, %clock64;
after:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p, %rd4, %rd6;
    @%p bra after;
    ret;
}
"""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, and a value of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint), ("_pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Twin:
    """The launch of the programmatic twin of a spin."""

    def __init__(self, timer: Timer, cycles: int) -> None:
        self._timer = timer
        self._kernel = timer.driver.kernel(_TWIN, b"twin")
        self._attribute = (_Attribute * 1)()
        self._attribute[0].id = _PROGRAMMATIC
        self._attribute[0].value[0] = 1
        values = (ctypes.c_uint64(cycles), ctypes.c_uint64(min(1_000, cycles)))
        self._values = values
        self._arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))

    def __call__(self) -> None:
        sizes = ((ctypes.c_uint * 3)(BLOCKS, 1, 1), (ctypes.c_uint * 3)(32, 1, 1))
        config = _Config(*sizes, 0, self._timer.stream.cuda_stream, self._attribute, 1)
        self._timer.driver.ask("cuLaunchKernelEx", ctypes.byref(config), self._kernel, self._arguments, None)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Samples of every kernel in every mode, and the clock meanwhile."""
    gpu = Gpu.find()
    if gpu is None or gpu.capability < (9, 0):
        raise CapabilityError("no GPU that launches programmatically (sm_90)", "run it on a machine with one")
    timer = Timer()
    ready: dict[str, Timed] = {"empty": timer.empty}
    for cycles in SPINS:
        for copy in ("plain", "again"):
            ready[f"{copy} {cycles}"] = timer.prepare([lambda n=cycles: timer.spin(n, BLOCKS)])  # type: ignore[misc]
        ready[f"twin {cycles}"] = timer.prepare([_Twin(timer, cycles)])
    rule = StopRule(least=options.samples, most=options.samples)
    watch = Watch("cuda")
    turns = Turns(watch, lambda *_: None)
    samples = {r: sample(ready, r, rule, turns) for r in TIMING_MODES}
    most = dict.fromkeys(ready, StopRule().most)
    calls = distributions(ready, "isolated", StopRule(), turns, most)
    versions = (gpu.name, f"driver {gpu.driver}", f"torch {toolchain.version_of('torch')}")
    return {
        "machine": raw.machine(*versions),
        "clocks": watch.seen.get("sm_clock", []),
        "kernels": {name: timed.kernels for name, timed in ready.items()},
        "samples": samples,
        "isolated_calls": calls,
    }


def judged(results: raw.Results) -> list[tuple[str, float, float, bool]]:
    """Each statement: what it is of, the value, its limit, and whether it holds."""
    p50 = {name: statistics.median(values) for name, values in results["samples"]["isolated"].items()}
    clock = statistics.median(results["clocks"] or [float("nan")])  # MHz: cycles a us
    rows = []
    for less, more in itertools.pairwise(SPINS):
        slope = (p50[f"plain {more}"] - p50[f"plain {less}"]) * clock / (more - less)
        limit = SLOPE + REPEATS_US * clock / (more - less)
        rows.append((f"slope from {less} to {more} cycles", slope, limit, abs(slope - 1) <= limit))
    for cycles in SPINS:
        gain = p50[f"plain {cycles}"] - p50[f"twin {cycles}"]
        rows.append((f"us that the twin of {cycles} cycles is faster", gain, TWIN_US, gain <= TWIN_US))
        same = p50[f"again {cycles}"] / p50[f"plain {cycles}"] - 1
        rows.append((f"A/A of {cycles} cycles", same, SAME, abs(same) <= SAME))
    return rows


def verdict(results: raw.Results) -> int:
    """The exit code."""
    return int(Exit.OK if all(holds for *_, holds in judged(results)) else Exit.FAILED)


def table(results: raw.Results) -> list[str]:
    """Medians of every mode, percentiles of single calls, and what is accepted."""
    lines = [f"machine: {results['machine']}", "", f"{'kernel':16}" + "".join(f"{r + ' us':>18}" for r in TIMING_MODES)]
    lines[-1] += f"{'p90 of calls':>14}{'p99':>10}"
    for name in results["kernels"]:
        medians = (statistics.median(results["samples"][r][name]) for r in TIMING_MODES)
        tail = percentiles(results["isolated_calls"][name])
        lines.append(f"{name:16}" + "".join(f"{m:18.3f}" for m in medians))
        lines[-1] += "".join(
            f"{'-' if x is None else format(x, '.3f'):>{w}}" for x, w in zip(tail, (14, 10), strict=True)
        )
    lines.append("")
    lines += [f"{what:44}{value:9.4f}  {'holds' if holds else 'MISSED'}" for what, value, _, holds in judged(results)]
    return lines


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=200, metavar="N", help="of each kernel and mode (default: 200)")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
