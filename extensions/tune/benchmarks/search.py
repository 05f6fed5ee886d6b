"""Search without a GPU: every sampler, and Kernel Tuner's strategies, on the recorded results of whole spaces.

What the H200 measured of every point of four spaces is in ``results``. A search asks for a point and
is told what was measured there, until it has had a tenth of the points that meet the conditions. Counted is what comes
to a GPU: a point that does not compile or cannot be launched costs none, on either side. (By the stricter count, of all
that is asked for, the second column tells how far each came with as many.) No search is given the hand-made variants to
begin with.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import logging
import lzma
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from benchmarks import raw
from flashcore.errors import Exit, UsageError
from flashcore_tune.command import batch_of
from flashcore_tune.search import STATIC, Budget, Outcome, Search
from flashcore_tune.space import Grid, Space

RECORDED = str(Path(__file__).with_name("results"))
OURS = ("random", "nsga2", "tpe", "gp")
KERNEL_TUNER = (
    "random_sample", "genetic_algorithm", "greedy_ils", "mls", "pso", "simulated_annealing", "dual_annealing",
    "firefly_algorithm", "diff_evo", "bayes_opt", "hybrid_vndx", "adaptive_tabu_greywolf",
)  # fmt: skip
#: What a small space is searched with, unless the user says otherwise.
DEFAULT = "tpe"
#: The goal: within 2 % of the best after a tenth of the space.
GOAL, NEAR = 0.1, 1.02


@dataclasses.dataclass
class Recorded:
    """What was measured of every point of a space, in place of a compiler and a GPU."""

    grid: Grid
    outcomes: Mapping[int, Outcome]
    gpu: str | None

    @staticmethod
    def read(file: Path) -> Recorded:
        """A header with the space, and a line per point."""
        data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
        header, *lines = map(json.loads, data.splitlines())
        axes = {axis: tuple(values) for axis, values in header["space"]["axes"].items()}
        shapes, conditions = (tuple(header["space"][key]) for key in ("shapes", "conditions"))
        space = Space(header["space"]["name"], header["space"]["variant"], axes, shapes, conditions)
        outcomes = {
            one["index"]: Outcome(
                one["fell"], one["reason"], one["times"], one["facts"], (*one["broken"],), one["code"]
            )
            for one in lines
        }
        return Recorded(Grid(space, header["constants"]), outcomes, header["gpu"])

    def gate(self, points: Sequence[int]) -> dict[int, Outcome]:
        found = {i: self.outcomes[i] for i in points}
        return {i: o if o.rejected in STATIC else Outcome(facts=o.facts, code=o.code) for i, o in found.items()}

    def measure(self, passed: Mapping[int, Outcome]) -> dict[int, Outcome]:
        return {i: self.outcomes[i] for i in passed}


def ours(kind: str, recorded: Recorded, seed: int, most: int) -> list[int]:
    """The points that one of our samplers asks for, in its order, by the loop that tunes."""
    search = Search(optuna.create_study(), recorded.grid, kind, seed, most)
    search.run(recorded, Budget(most), batch_of(kind, most), lambda _: None)
    return list(search.outcomes)


def kernel_tuner(strategy: str, grid: Grid, seed: int, most: int, cache: Path) -> list[int]:
    """The points that a strategy of Kernel Tuner evaluates, in its order; each counts once."""
    import random

    import kernel_tuner as kt
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    axes = {axis: list(values) for axis, values in grid.space.axes.items()}
    with _quiet():
        points, _ = kt.tune_kernel(
            "toy", "", (1, 1), [], axes, restrictions=list(grid.space.conditions), strategy=strategy,
            strategy_options={"max_fevals": most}, simulation_mode=True, cache=str(cache), lang="C", verbose=False,
            quiet=True,
        )  # fmt: skip
    indices = [grid.index({axis: point[axis] for axis in axes}) for point in points if point is not None]
    return list(dict.fromkeys(i for i in indices if not grid.broken(i)))[:most]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Kernel Tuner and what it calls say much, in several ways."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _cache(grid: Grid, recorded: Mapping[int, Outcome], folder: Path) -> Path:
    """The recorded results in Kernel Tuner's format; failed candidates are configs that do not compile."""
    shape = grid.space.shapes[0]
    points: dict[str, Any] = {}
    for index in grid.feasible:
        point: dict[str, Any] = dict(grid.point(index))
        time_us = recorded[index].times.get(shape)
        point["time"] = "CompilationFailedConfig" if time_us is None else time_us
        point |= {"compile_time": 0, "verification_time": 0, "benchmark_time": 0, "strategy_time": 0,
                  "framework_time": 0, "timestamp": "", "times": []}  # fmt: skip
        points[",".join(str(grid.point(index)[axis]) for axis in grid.space.axes)] = point
    axes = {axis: list(values) for axis, values in grid.space.axes.items()}
    whole = {"device_name": "Simulation", "kernel_name": "toy", "problem_size": [1, 1], "tune_params_keys": list(axes),
             "tune_params": axes, "objective": "time", "cache": points}  # fmt: skip
    path = folder / f"{grid.space.name}.json"
    path.write_text(json.dumps(whole))
    return path


def measure(options: argparse.Namespace) -> dict[str, Any]:
    files = sorted(p for p in Path(options.recorded).iterdir() if p.name.endswith((".jsonl", ".jsonl.xz")))
    if not files:
        raise UsageError(f"{options.recorded}: expected recorded studies, found none")
    spaces: dict[str, Any] = {}
    for file in files:
        recorded = Recorded.read(file)
        grid, results = recorded.grid, recorded.outcomes
        shape = grid.space.shapes[0]
        if missing := set(grid.feasible) - results.keys():
            raise UsageError(f"{file}: expected every point of the space, found {len(missing)} missing")
        times = {i: r.times[shape] for i, r in results.items() if shape in r.times}
        budget = round(GOAL * len(grid.feasible))
        runs = [i for i, r in results.items() if r.rejected not in STATIC]
        most = round(budget * len(grid.feasible) / len(runs))  # asked for, so that as many run
        indices: dict[str, list[list[int]]] = {}
        seconds: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            cache = _cache(grid, results, Path(folder))
            for who in options.who or [*OURS, *(f"kt {s}" for s in KERNEL_TUNER)]:
                began = time.monotonic()
                count = min(options.seeds, options.gp_seeds) if who == "gp" else options.seeds
                for seed in range(count):
                    one = (
                        kernel_tuner(who.removeprefix("kt "), grid, seed, most, cache)
                        if who.startswith("kt ")
                        else ours(who, recorded, seed, budget)
                    )
                    indices.setdefault(who, []).append(one)
                seconds[who] = round((time.monotonic() - began) / count, 3)
                print(f"{grid.space.name}: {who}: {seconds[who]:.2f} s a seed", file=sys.stderr, flush=True)
        statically = sum(r.rejected in STATIC for r in results.values()) + len(grid) - len(grid.feasible)
        spaces[grid.space.name] = {
            "points": len(grid), "feasible": len(grid.feasible), "gpu": recorded.gpu, "shape": shape,
            "statically_infeasible": statically, "runs": runs,
            "times": times, "asked": indices, "seconds": seconds,
            "rejected": {s: sum(r.rejected == s for r in results.values()) for s in (*STATIC, "check", "bench")},
        }  # fmt: skip
    return {"spaces": spaces}


def _came(indices: Sequence[int], space: Mapping[str, Any]) -> tuple[float, float, float]:
    """The best over the space's best after so many measured, the same after as many asked for, and how many were
    measured until a point within 2 %; infinite if there was none."""
    times: Mapping[str, float] = space["times"]
    best, budget = min(times.values()), round(GOAL * space["feasible"])
    measured = looked = needed = float("inf")
    runs, cost = set(space["runs"]), 0
    for count, index in enumerate(indices, 1):
        cost += index in runs
        ratio = times.get(str(index), float("inf")) / best
        if cost <= budget:
            measured = min(measured, ratio)
            needed = cost if ratio <= NEAR and needed == float("inf") else needed
        if count <= budget:
            looked = min(looked, ratio)
    return measured, looked, needed


def figures(results: raw.Results) -> dict[str, dict[str, tuple[float, float, float, float]]]:
    """Space → who → medians over seeds of what :func:`_came` gives, and the share of searches within 2 %."""
    table: dict[str, dict[str, tuple[float, float, float, float]]] = {}
    for name, space in json.loads(json.dumps(results["spaces"])).items():  # numbers of points are text in a file
        table[name] = {}
        for who, all_asked in space["asked"].items():
            came = [_came(indices, space) for indices in all_asked]
            measured, looked, needed = (statistics.median(column) for column in zip(*came, strict=True))
            table[name][who] = measured, looked, needed, sum(c[0] <= NEAR for c in came) / len(came)
    return table


def table(results: raw.Results) -> list[str]:
    """The figures: for each space who came how near, and the goals."""
    lines = []
    for name, rows in figures(results).items():
        space = results["spaces"][name]
        times = list(space["times"].values())
        budget = round(GOAL * space["feasible"])
        lines += [
            "",
            f"{name} on {space['gpu'] or 'a stand-in'}, {space['shape']}: {space['points']:,} points, "
            f"{space['feasible']:,} meet the conditions, {len(times):,} timed, best "
            f"{min(times):.4g} us, median {statistics.median(times):.4g} us",
            f"statically infeasible, which no GPU sees: {space['statically_infeasible']:,}; rejected at check "
            f"{space['rejected']['check']}, at bench {space['rejected']['bench']}; {budget} to be measured",
            f"{'best over optimum, median':<32}{'measured':>9}{'asked':>9}{'2 % after':>11}{'in time':>9}{'s':>7}",
        ]
        for who, (ratio, looked, needed, share) in sorted(rows.items(), key=lambda r: (r[1][0], -r[1][3])):
            spent, after = space["seconds"][who], "-" if needed == float("inf") else f"{needed:g}"
            lines.append(f"{who:<32}{ratio:>9.4f}{looked:>9.4f}{after:>11}{100 * share:>8.0f}%{spent:>7.2f}")
    return [*lines, "", *verdicts(results)]


def verdicts(results: raw.Results) -> list[str]:
    """The goals, each met or missed: by the best of our samplers in each space, which nobody knows before, and by the
    one that is taken unless the user says otherwise."""
    lines = []
    shown = {name: rows for name, rows in figures(results).items() if {*rows} & {"nsga2", "tpe", "gp"}}
    for who in ("our best", DEFAULT):
        near = ahead = beats = 0
        names = []
        for rows in shown.values():
            rivals = {w: r for w, r in rows.items() if w in OURS and w != "random" and who in ("our best", w)}
            if not rivals:
                continue
            name = min(rivals, key=lambda w: (rivals[w][0], -rivals[w][3]))
            names.append(name)
            near += rivals[name][0] <= NEAR
            ahead += rivals[name][0] <= min(
                (r[0] for w, r in rows.items() if w.startswith("kt ")), default=float("inf")
            )
            beats += "random" in rows and rivals[name][0] < rows["random"][0]
        count = len(names)
        lines += [
            f"{who} ({', '.join(dict.fromkeys(names))}): within 2 % after 10 %, median: {near} of {count}; not behind "
            f"Kernel Tuner's best: {ahead} of {count} (goal: 3 of 4); ahead of random points: {beats} of {count}"
        ]
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recorded", default=RECORDED, metavar="DIR", help="studies of whole spaces")
    parser.add_argument("--seeds", type=int, default=20, metavar="N")
    parser.add_argument(
        "--gp-seeds", type=int, default=5, metavar="N", help="for gp, which is slow (default: %(default)s)"
    )
    parser.add_argument("--who", action="append", metavar="NAME", help="one of ours, or 'kt STRATEGY'; repeatable")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(raw.main(__file__, __doc__, add_arguments, measure, table, verdict=lambda _: Exit.OK))
