"""The bench stage's stopwatch held against nvbench: ``python -m benchmarks.crosscheck`` (needs a GPU and cuda-bench).

Both time the same calls cold: L2 is overwritten, then one call is timed. They take turns, each in
processes of its own; a round is one of each. What differs is all that is not the kernel: the bench stage
takes the difference between graphs that fill twice L2's size with and without the call, nvbench launches it
from Python behind a kernel that blocks the stream, after clearing L2's size, between events, and decides by
itself how many samples it wants.

Exit code 0 if every case agrees within 2 %, 1 if one does not (or is too short for 2 % to mean anything),
4 if there is no GPU or no cuda-bench.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.metadata
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.cli import progress
from flashcore.errors import CapabilityError, Exit, FlashcoreError, UsageError
from flashcore.machine import toolchain
from flashcore.model.settings import Bench, Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.kernel_call import Caller, KernelCall, require_device
from flashcore.runner.problem_file import load_problem
from flashcore.stages.bench import bench
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.runnable_cases import child_cases

CASES = ("scalar_multiquery/s2048", "unfused_wmma/s4096", "fused_wmma/s4096")
#: The largest difference of the medians, and the time (us) above which events resolve it.
AGREEMENT = 0.02
SHORTEST_US = 200.0

_SAMPLES = 100  # at least, of each case, tool and round
_SECONDS = 1.5  # of sampling by the bench stage, a shape
_TIMEOUT = 600.0  # seconds for one process of nvbench
_MEND = "python -m pip install 'cuda-bench[cu13]' (or [cu12]: the CUDA major version of torch's build)"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, compare, table, argv, verdict)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument(
        "--case", action="append", default=[], metavar="VARIANT/SHAPE", help=f"repeatable (default: {', '.join(CASES)})"
    )
    parser.add_argument("--build-dir", default="build", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--child", nargs=2, metavar=("CASES", "RESULT"), help=argparse.SUPPRESS)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Builds, times in turns and gives the medians of each round; a child of it only measures.

    Raises:
        CapabilityError: no GPU, or no cuda-bench.
        UsageError: a case that the suite does not have.
    """
    if options.child:
        _nvbench_child(Path(options.child[0]), Path(options.child[1]))
        return {}
    if options.rounds < 1:
        raise UsageError(f"--rounds: expected at least 1, found {options.rounds}")
    version = _nvbench_version()
    names = tuple(options.case) or CASES
    say = progress.plain()
    timing = Bench(samples=_SAMPLES, seconds=_SECONDS, modes=("cold",))
    job = open_context(Settings(suite=options.suite, build=options.build_dir, upto="bench", bench=timing))
    if job.gpu is None or job.gpu_arch is None:
        raise CapabilityError("no GPU that runs the suite's archs", "run it on a machine with one")
    pairs = [(v, s) for s in job.shapes for v in job.variants if f"{v.name}/{s.name}" in names and v.runs_on(s)]
    if missing := set(names) - {f"{v.name}/{s.name}" for v, s in pairs}:
        raise UsageError(
            f"--case: expected cases of suite {job.suite.name}, found {', '.join(sorted(missing))}\n"
            "  hint: variant/shape out of: flashcore list"
        )
    # Nothing else is compiled.
    job = replace(job, variants=tuple(v for v in job.variants if any(v.name == chosen.name for chosen, _ in pairs)))
    build = compile_all(replace(job, say=say))
    job = replace(job, built=build)
    built = {a.variant: a for a in build.artifacts if a.arch == job.gpu_arch}
    for variant, _ in pairs:
        if not variant.is_reference and (variant.name not in built or built[variant.name].library is None):
            raise FlashcoreError(f"{variant.name}: expected a library for {job.gpu_arch}, found none (see the build)")
    assert job.gpu is not None
    cases = child_cases(job, pairs)
    ours: dict[str, list[float]] = {case.name: [] for case in cases}
    theirs: dict[str, list[float]] = {case.name: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="bench-crosscheck-") as scratch:
        for number in range(options.rounds):
            folder = Path(scratch) / f"round-{number}"
            folder.mkdir()
            # Who goes first changes: the second finds a warmer chip.
            turns: list[tuple[str, Callable[[Sequence[KernelCall], Path], dict[str, float]], dict[str, list[float]]]]
            turns = [("bench stage", functools.partial(_by_the_stage, job), ours), ("nvbench", _by_nvbench, theirs)]
            for what, measure, medians in turns if number % 2 == 0 else reversed(turns):
                times = measure(cases, folder)
                for name, median in times.items():
                    medians[name].append(median)
                say(f"round {number}: {what} " + ", ".join(f"{n} {us:.2f} us" for n, us in times.items()))
    versions = (
        job.gpu.name,
        f"driver {job.gpu.driver}",
        f"torch {toolchain.version_of('torch')}",
        f"cuda-bench {version}",
    )
    return {"machine": raw.machine(*versions), "suite": job.suite.name, "ours": ours, "nvbench": theirs}


def verdict(results: Mapping[str, Any]) -> int:
    """The exit code."""
    return int(Exit.OK if all(v.startswith("agree") for _, v in _rows(results)) else Exit.FAILED)


def table(results: Mapping[str, Any]) -> list[str]:
    """The medians over rounds, each with its range, and the verdicts."""
    if not results:
        return []
    rounds = max(map(len, results["ours"].values()), default=0)
    return [
        f"machine: {results['machine']}",
        f"cases:   {len(results['ours'])} of suite {results['suite']}, cold, {rounds} rounds in turns",
        "",
        f"{'case':28}{'bench stage':>14}{'range':>9}{'nvbench':>14}{'range':>9}{'ratio':>9}  verdict",
        *(f"{figures}  {verdict}" for figures, verdict in _rows(results)),
    ]


def _rows(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures of each case and what they say."""
    ours, theirs = results.get("ours", {}), results.get("nvbench", {})
    for name in ours:
        stage_time, other = (statistics.median(series[name]) for series in (ours, theirs))
        ratio = stage_time / other
        if min(stage_time, other) < SHORTEST_US:
            verdict = f"too short: below {SHORTEST_US:.0f} us"
        elif abs(ratio - 1) <= AGREEMENT:
            verdict = f"agree within {100 * AGREEMENT:.0f} %"
        else:
            verdict = f"DIFFER by more than {100 * AGREEMENT:.0f} %"
        ranges = [f"{100 * (max(s[name]) / min(s[name]) - 1):.2f} %" for s in (ours, theirs)]
        yield f"{name:28}{stage_time:>11.2f} us{ranges[0]:>9}{other:>11.2f} us{ranges[1]:>9}{ratio:>9.4f}", verdict


# --- the bench stage ------------------------------------------------------------------------------------


def _by_the_stage(context: Context, cases: Sequence[KernelCall], folder: Path) -> dict[str, float]:
    """Case → median of its cold samples (us)."""
    with context.workers:
        result = bench.run(replace(context, folder=folder), cases)
    if bad := [o for o in result.outcomes if o.status != "ok"]:
        raise FlashcoreError(f"{bad[0].case}: expected to be timed, found: {bad[0].reason}")
    return {case.name: statistics.median(result.samples[case.case, "cold"]) for case in cases}


# --- nvbench --------------------------------------------------------------------------------------------


def _nvbench_version() -> str:
    """cuda-bench's version; it is loaded only where it is used, since that takes a driver.

    Raises:
        CapabilityError: it is not installed.
    """
    try:
        version = importlib.metadata.version("cuda-bench")
        importlib.metadata.version("cuda-bindings")  # by whose version it picks its build
    except importlib.metadata.PackageNotFoundError as error:
        raise CapabilityError(f"no {error.name}: nvbench's Python bindings are not installed", _MEND) from error
    return version


def _by_nvbench(cases: Sequence[KernelCall], folder: Path) -> dict[str, float]:
    """Case → median of nvbench's cold samples (us), taken in one process of its own."""
    task, answer = folder / "cases.json", folder / "nvbench.json"
    task.write_text(json.dumps([case.to_json() for case in cases]), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.crosscheck", "--child", str(task), str(answer)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise FlashcoreError(f"nvbench: expected to be done in {_TIMEOUT:.0f} s, found it still at work") from error
    if done.returncode != 0 or not answer.is_file():
        output = f"{done.stdout[-1500:]}{done.stderr[-1500:]}".strip()
        raise FlashcoreError(f"nvbench: expected its samples, found exit code {done.returncode}: {output}")
    results = importlib.import_module("cuda.bench.results")
    # Its benchmarks are named by their places in the list of cases: what names it allows is not documented.
    benchmark = results.BenchmarkResult.from_json(answer)
    medians = {}
    for index, case in enumerate(cases):
        states = list(benchmark[_benchmark(index)])
        if len(states) != 1 or not states[0].samples:
            reason = states[0].skip_reason if states else "no state"
            raise FlashcoreError(f"{case.name}: expected samples of nvbench, found none ({reason})")
        medians[case.name] = statistics.median(states[0].samples) * 1e6
    return medians


def _benchmark(index: int) -> str:
    return f"case_{index}"


def _nvbench_child(task: Path, answer: Path) -> None:
    """Registers every case with nvbench and lets it measure; the samples go to ``answer`` and files beside it."""
    require_device("cuda")
    nvbench: Any = importlib.import_module("cuda.bench")
    cases = [KernelCall.from_json(case) for case in json.loads(task.read_text("utf-8"))]
    failed: list[str] = []
    for index, case in enumerate(cases):
        benchmark = nvbench.register(_measure(case, failed))
        benchmark.set_name(_benchmark(index))
        benchmark.set_min_samples(_SAMPLES)
    nvbench.run_all_benchmarks([sys.argv[0], "--devices", "0", "--jsonbin", str(answer)])
    if failed:
        raise FlashcoreError("; ".join(failed))


def _measure(case: KernelCall, failed: list[str]) -> Callable[[Any], None]:
    """The callable that nvbench times for one case. It keeps errors, since nvbench may drop exceptions."""

    def measure(state: Any) -> None:
        import torch

        try:
            problem = load_problem(case.root, case.problem_file)
            inputs = problem.make_inputs(dict(case.params), case.seeds[0], "cuda")
            caller = Caller(case, problem, "cuda")
            outputs = caller.outputs()
            caller.load(inputs, outputs)
            call = caller.bind(inputs, outputs)
            call()  # loads its module, which must not happen behind nvbench's blocking kernel
            torch.cuda.synchronize()
            # On the stream that nvbench times, found once: the less Python behind the blocking kernel the better.
            stream = torch.cuda.ExternalStream(state.get_stream().addressof())  # type: ignore[no-untyped-call]
            with torch.cuda.stream(stream):
                state.exec(lambda _: call(), batched=False)
            torch.cuda.synchronize()
        except Exception as error:
            failed.append(f"{case.name}: {type(error).__name__}: {error}")
            raise

    # A distinct name: nvbench uses it as the benchmark's name.
    measure.__name__ = case.variant
    return measure


if __name__ == "__main__":
    sys.exit(main())
