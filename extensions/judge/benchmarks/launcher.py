"""The launcher's times beside bench's: ``python -m extensions.judge.benchmarks.launcher`` (needs a GPU).

Ten kernels, six of CUDA and four of Triton, are timed in turns: as bench times them, in this process with torch
and their host code; by the launcher's process from cubins and a plan; and the kernels of Triton also as
``bench --launcher`` does. Accepted is, for each kernel:

1. *Bits*: the launcher's output is bench's, bit by bit, on the same inputs.
2. *Times*: in each regime of the device the launcher's median is within 1 % and 0.1 us of bench's, or within the
   range of bench's medians.

Where tensors lie in memory changes a kernel's time by up to 2 %, for as long as they lie there. So all is allocated
anew several times (``--placements``), each time in a new process of the launcher; a time is the median over placements
of the medians, and the range of bench's medians over placements is the noise. Eager times are shown, not judged: they
are the host's.

Exit code 0 if both hold, 1 if not, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import CapabilityError, Exit
from flashcore.measure.cases import child_cases
from flashcore.measure.compiling import compile_all
from flashcore.measure.context import Context
from flashcore.measure.settings import Settings
from flashcore.measure.workers.kernel_call import Caller, Case
from flashcore.measure.workers.problem_file import load_problem
from flashcore.pipeline import plugins
from flashcore.pipeline.opening import open_context

#: Suite → variant → shape.
KERNELS = {
    "examples/row_softmax": {"naive": "main", "warp": "main"},
    "kernels/attention": {
        "unfused_wmma": "mission",
        "register_softmax": "mission",
        "mma_registers": "mission",
        "mma_split_keys": "mission",
    },
    "examples/triton_kernels": {
        "softmax_4_warps": "rows",
        "softmax_8_warps": "rows",
        "matmul_64x64": "square",
        "matmul_128x256": "square",
    },
}
REGIMES = ("isolated", "back_to_back", "cold", "eager")
RELATIVE, ABSOLUTE_US = 0.01, 0.1
_SEED = 1
_LAUNCHER = "launcher"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Samples of every kernel in every regime, by each way to launch it, and whether outputs were equal."""
    plugins.load()
    chosen = options.kernels.split(",") if options.kernels else None
    results: dict[str, Any] = {"machine": "", "kernels": {}}
    for suite, variants in KERNELS.items():
        for variant, shape in variants.items():
            if chosen is None or variant in chosen:
                context = _built(suite, variant, options.build)
                results["machine"] = raw.machine(str(context.gpu and context.gpu.name), str(context.gpu_arch))
                places = [_kernel(context, shape, options.samples, place) for place in range(options.placements)]
                results["kernels"][variant] = {
                    "equal": {name: all(p["equal"][name] for p in places) for name in places[0]["equal"]},
                    "placements": places,
                }
                print(f"{variant}: measured", file=sys.stderr)
    return results


def _built(suite: str, variant: str, build: str) -> Context:
    settings = Settings(str(raw.ROOT / suite), build=build, variants=(variant,), upto=None)
    context = open_context(replace(settings, launcher="flashcore_judge.launcher.program:target"))
    if context.cannot_measure or context.gpu_arch is None:
        raise CapabilityError(context.cannot_measure, "run it on a machine with a GPU")
    context = replace(context, options=replace(context.options, archs=(context.gpu_arch,)))
    return replace(context, built=compile_all(context))


def _kernel(context: Context, shape: str, samples: int, placement: int) -> dict[str, Any]:
    import torch

    from flashcore.measure.bench.interleave import Watch
    from flashcore.measure.bench.rotation import Rotation
    from flashcore.measure.bench.timing import timer_for
    from flashcore_judge.launcher import program

    torch.cuda.empty_cache()
    # Kept while this placement is measured: moves what is allocated next.
    spacer = torch.empty(placement * 37 << 20, dtype=torch.uint8, device="cuda")
    (pair,) = [(v, s) for v, s in context.cases("bench") if s.name == shape and v.name not in context.references]
    (case,) = child_cases(context, [pair])
    problem, timer = load_problem(case.root, case.problem_file), timer_for("cuda")
    by_library, case = case, replace(case, launcher={})
    rotation = Rotation(timer, case, problem, "cuda")
    callers = {"bench": Caller(case, problem)}
    if by_library.launcher:
        callers["bench --launcher"] = Caller(by_library, problem)
    ready = {name: rotation.prepare(timer, caller) for name, caller in callers.items()}
    outputs = callers["bench"].outputs()
    callers["bench"].call(rotation.inputs[0], outputs)
    expected = {name: _bytes(value) for name, value in outputs.items()}
    with tempfile.TemporaryDirectory() as place:
        plan = _plan(context, by_library, rotation.inputs, Path(place))
        with program.launcher(plan, Path(place)) as launcher:
            launcher.ask("call", 0)
            equal = {name: launcher.read(name) == content for name, content in expected.items()}
            ways = [*ready, _LAUNCHER]
            watch, dice = Watch("cuda"), random.Random(_SEED)
            times: dict[str, dict[str, list[float]]] = {r: {way: [] for way in ways} for r in REGIMES}
            for regime in REGIMES:
                for _ in range(samples):
                    for way in dice.sample(ways, len(ways)):
                        us = (
                            launcher.ask("sample", regime)["us"][0] if way == _LAUNCHER else _sample(ready[way], regime)
                        )
                        times[regime][way].append(round(us, 4))
                    watch.look()
            sets = launcher.sets
    del spacer
    clocks = watch.seen.get("sm_clock", [])
    return {"equal": equal, "sets": [len(rotation.inputs), sets], "clocks": clocks, "us": times}


def _sample(timed: Any, regime: str) -> float:
    us: float = getattr(timed, regime)()
    return us


def _plan(context: Context, case: Case, inputs: Sequence[Any], folder: Path) -> Any:
    from flashcore_judge.launcher import cuda_source, planned

    artifact = context.built.artifact(case.variant, context.gpu_arch)
    if case.library and artifact:
        plan = cuda_source.planned(case, inputs[0], artifact, folder)
    else:
        plan = planned.planned(case, folder)
    data = plan.model_dump()
    for name, tensor in data["tensors"].items():
        if tensor["role"] in ("input", "inout"):
            tensor["files"] = [f"{name}.{i}.raw" for i in range(len(inputs))]
            for file, values in zip(tensor["files"], inputs, strict=True):
                (folder / file).write_bytes(_bytes(values[name]))
    return type(plan).model_validate(data)


def _bytes(tensor: Any) -> bytes:
    import torch

    content: bytes = tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
    return content


def judged(results: raw.Results) -> list[tuple[str, str, float, float, float, float, bool]]:
    """For each kernel and regime: us of bench, least and most of its placements, of the launcher, do they agree."""
    rows = []
    for kernel, one in results["kernels"].items():
        for regime in REGIMES:
            bench, launcher = _medians(one, regime, "bench"), statistics.median(_medians(one, regime, _LAUNCHER))
            us, least, most = statistics.median(bench), min(bench), max(bench)
            near = abs(launcher - us) <= RELATIVE * us + ABSOLUTE_US
            rows.append(
                (kernel, regime, us, least, most, launcher, regime == "eager" or near or least <= launcher <= most)
            )
    return rows


def _medians(one: Mapping[str, Any], regime: str, way: str) -> list[float]:
    return [statistics.median(place["us"][regime][way]) for place in one["placements"] if way in place["us"][regime]]


def verdict(results: raw.Results) -> int:
    """The exit code."""
    equal = all(all(one["equal"].values()) for one in results["kernels"].values())
    return int(Exit.OK if equal and all(row[-1] for row in judged(results)) else Exit.FAILED)


def table(results: raw.Results) -> list[str]:
    """Medians, and what is accepted."""
    lines = [f"machine: {results['machine']}", ""]
    lines.append(
        f"{'kernel':18}{'regime':14}{'bench us':>10}{'placements us':>19}{'launcher us':>13}{'%':>7}{'option us':>11}"
    )
    for kernel, regime, bench, least, most, launcher, holds in judged(results):
        option = _medians(results["kernels"][kernel], regime, "bench --launcher")
        shown = f"{statistics.median(option):11.3f}" if option else f"{'-':>11}"
        spread = f"{least:.3f}..{most:.3f}"
        percent = 100 * (launcher / bench - 1)
        text = f"{kernel:18}{regime:14}{bench:10.3f}{spread:>19}{launcher:13.3f}{percent:7.2f}{shown}"
        lines.append(f"{text}  {'' if regime == 'eager' else 'holds' if holds else 'MISSED'}".rstrip())
    lines.append("")
    for kernel, one in results["kernels"].items():
        lines += [f"{kernel}: {name} {'equal' if same else 'DIFFERS'}" for name, same in one["equal"].items()]
    return lines


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--samples", type=int, default=20, metavar="N", help="of each kernel, regime, way and placement"
    )
    parser.add_argument("--placements", type=int, default=5, metavar="N", help="how often all is allocated anew")
    parser.add_argument("--kernels", metavar="NAME,...", help="only these (default: all ten)")
    parser.add_argument("--build", default="build", metavar="DIR", help="compiled objects (default: build)")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
