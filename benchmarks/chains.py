"""Kernels of a known length, for planted slowdowns; built from ``benchmarks/planted`` once a step's time is known.

Where there is no GPU callables stand in for them, which tries the plumbing.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.features.compare import time_pairs
from flashcore.features.compare.match_cases import BuiltSuite
from flashcore.features.compare.time_pairs import Contest, copied
from flashcore.model.progress import Say
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.kernel_call import KernelCall
from flashcore.runner.queue import Pool
from flashcore.stages.compiling import compile_all
from flashcore.stages.context import Context
from flashcore.stages.runnable_cases import child_cases

PLANTED = Path(__file__).parent / "planted"
#: Their blocks and threads, their times in us, and by how much they are made longer.
GRIDS = ((1, 32), (132, 128), (528, 256))
DURATIONS = (5.0, 20.0, 100.0)
SLOWDOWNS = (0.02, 0.05, 0.10)
#: Lengths from which the time of a step is found.
CALIBRATION = (1000, 6000)

Grid = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Length:
    """A chain's time (us) as a function of its length: ``start + step * loops``."""

    start: float
    step: float

    def loops(self, us: float) -> int:
        """The length that takes so long."""
        return max(1, round((us - self.start) / self.step))


def compiled(settings: Settings, device: str, say: Say) -> BuiltSuite:
    """A suite, built for this machine's GPU.

    Raises:
        CapabilityError: there is none.
    """
    job = replace(open_context(replace(settings, upto=None)), say=say)
    if device == "cuda":
        if job.cannot_measure:
            raise CapabilityError(job.cannot_measure, "run it on a machine with a GPU")
        assert job.gpu_arch is not None
        job = replace(job, options=replace(job.options, archs=(job.gpu_arch,)))
    return BuiltSuite(job, compile_all(job))


def runnable(side: BuiltSuite, device: str) -> list[KernelCall]:
    """The cases that bench would time: kernels on a GPU, callables on the CPU."""
    job, build = side.job, side.built
    have = {a.variant for a in build.artifacts if a.library is not None and a.arch == job.gpu_arch}
    refused = {(p.variant, p.shape) for p in build.plans if p.error}
    return child_cases(
        replace(job, built=build),
        [
            (v, s)
            for v, s in job.cases("bench")
            if (v.is_reference if device == "cpu" else v.name in have) and (v.name, s.name) not in refused
        ],
    )


def name_of(grid: Grid, loops: int) -> str:
    """A chain's variant."""
    return f"chain_{grid[0]}x{grid[1]}_{loops}"


def write_suite(chains: Sequence[tuple[Grid, int]], folder: Path, device: str) -> Path:
    """A suite of these chains, a grid and a length each."""
    shutil.copytree(PLANTED, folder, ignore=shutil.ignore_patterns("__pycache__"))
    chains = list(dict.fromkeys(chains))
    lines = [
        'name = "planted"',
        'title = "Chains of a known length"',
        'nvcc = "13.0"',
        'archs = ["sm_80", "sm_89", "sm_90a"]',
        f'baseline = "{name_of(*chains[0])}"',
        "[problem.chain]",
        'file = "problem.py"',
        'schema = "(Tensor x, Tensor(a!) out, float half) -> ()"',
        'dims = { x = ["N"], out = ["N"] }',
        'dtypes = { "*" = "float32" }',
        "seeds = [0]",
        "[shape.planted]",
        "params = { N = 32 }",
    ]
    for grid, loops in chains:
        name = name_of(grid, loops)
        config = f"{{ BLOCKS = {grid[0]}, THREADS = {grid[1]}, LOOPS = {loops} }}"
        lines += [
            f"[variant.{name}]",
            f'technique = "{loops} steps"',
            f'source = "chain.cu"\nconfig = {config}' if device == "cuda" else f'callable = "peers.py:{name}"',
            'roof = "fp32"',
            'tolerance = "exact"',
            'tolerance_reason = "nothing is rounded"',
        ]
    (folder / "suite.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def chains_of(chains: Sequence[tuple[Grid, int]], folder: Path, device: str, say: Say) -> dict[str, KernelCall]:
    """The chains, built, by name."""
    suite = write_suite(chains, folder / "suite", device)
    side = compiled(Settings(suite=str(suite), build=str(folder / "build")), device, say)
    cases = {case.variant: case for case in runnable(side, device)}
    if missing := {name_of(*c) for c in chains} - cases.keys():
        raise FlashcoreError(f"expected every planted kernel to be built, found none of {', '.join(sorted(missing))}")
    return cases


def timed(job: Context, contests: Sequence[Contest], processes: int, rounds: int) -> time_pairs.Timings:
    """The contests, each timed in so many processes, with processes of their own."""
    settings = replace(job.settings, bench=replace(job.settings.bench, samples=rounds))
    with Pool() as workers:
        return time_pairs.run(replace(job, settings=settings, workers=workers), contests, processes)


def calibrated(job: Context, scratch: Path, say: Say) -> dict[Grid, Length]:
    """The time of a step on this machine, from two lengths of each grid."""
    device = job.device
    short, long = CALIBRATION
    cases = chains_of([(g, n) for g in GRIDS for n in CALIBRATION], scratch, device, say)
    contests = {g: Contest.of(name_of(g, 0), cases[name_of(g, short)], cases[name_of(g, long)], scratch) for g in GRIDS}
    timings = timed(replace(job, folder=scratch), [*contests.values()], processes=1, rounds=50)
    for name, lost in timings.lost.items():
        raise FlashcoreError(f"{name}: expected to be timed, found: {lost.reason}")
    lengths = {}
    for grid, pair in contests.items():
        (times,) = timings.times[pair.name]
        low, high = statistics.median(times.before + times.again), statistics.median(times.after)
        step = (high - low) / (long - short)
        if step <= 0:
            raise FlashcoreError(
                f"{name_of(grid, 0)}: expected a longer chain to take longer, found {low:.3f} and {high:.3f} us"
            )
        lengths[grid] = Length(low - step * short, step)
        say(f"{name_of(grid, 0)}: {lengths[grid].start:.3f} us and {1000 * step:.3f} ns a step")
    return lengths


def planted(lengths: Mapping[Grid, Length], scratch: Path, device: str, say: Say) -> list[Contest]:
    """Every grid and duration against itself made longer, as ``planted_<duration>_<slowdown>_<grid>``. A duration that
    is mostly a grid's start is left out: of so few steps the time does not follow. So is what no step makes longer."""
    wanted = [
        (g, us, s)
        for us in DURATIONS
        for g in GRIDS
        for s in SLOWDOWNS
        if lengths[g].start < us / 2 and lengths[g].loops(us * (1.0 + s)) > lengths[g].loops(us)
    ]
    chains = [(g, lengths[g].loops(us * factor)) for g, us, s in wanted for factor in (1.0, 1.0 + s)]
    cases = chains_of(chains, scratch, device, say)
    contests = []
    for grid, us, slower in wanted:
        name = f"planted_{us:g}us_{100 * slower:g}pct_{grid[0]}x{grid[1]}"
        before, after = (cases[name_of(grid, lengths[grid].loops(us * factor))] for factor in (1.0, 1.0 + slower))
        # Each contest has a separate library: contests of one grid and duration share their short chain.
        before = copied(before, scratch / name)
        contests.append(Contest.of(name, before, after, scratch / name / "copies"))
    return contests
