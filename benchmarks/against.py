"""False alarms and detected slowdowns of the timing gate: ``python -m benchmarks.against`` (needs a GPU).

Every case of a suite is timed as ``flashcore bench --against`` times it, but with three loads of one and the same
build. And kernels of a known length (``benchmarks/planted``) are timed against the same ones made longer. All in the
same processes, of which there are as many as the time allows. Then the gate's own rule decides:

1. *A/A*. A gate run is a draw: nine processes of all, and in each of them the three builds, which are one, are dealt
   the parts of before, after and again by lot. A comparison is what the rule decides of one case in one gate run.
   Draws share processes, though with other parts, and so say little more than the processes themselves: the bound
   of the rate is that of disjoint gate runs, of successive processes, alone.
2. *Planted slowdowns*, in gate runs together with the cases in which nothing changed, at the defaults. Disjoint runs
   are nine successive processes each; drawn ones are as above, with the parts as they were loaded.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import chains, raw
from flashcore.cli import progress
from flashcore.errors import UsageError
from flashcore.features.compare.time_pairs import Contest, Times, copied
from flashcore.machine import toolchain
from flashcore.model.settings import Settings
from flashcore.model.slower import ALPHA, EFFECT, PROCESSES, ProcessTimes, decide
from flashcore.runner.kernel_call import KernelCall

#: The shapes on which a call is short.
SUITE, SHAPES = "kernels/attention", ("s256", "mission")
COMPARISONS = 3000  # wanted; there are fewer where so many would say the same again and again
LEVELS = (0.05, 0.01, ALPHA)
#: Roles of the three builds: (before, after, again) as indices into the timings before, after, again.
DEALS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def binomial_upper(alarms: int, trials: int, confidence: float = 0.95) -> float:
    """The rate that is ruled out by so few alarms in so many trials (Clopper and Pearson's upper bound)."""
    if alarms >= trials:
        return 1.0
    low, high = alarms / trials, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        if _chance_of_at_most(alarms, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _chance_of_at_most(alarms: int, trials: int, rate: float) -> float:
    ways = [math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(alarms + 1)]
    return sum(math.exp(way + k * math.log(rate) + (trials - k) * math.log1p(-rate)) for k, way in enumerate(ways))


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default=SUITE, metavar="DIR", help="whose cases are compared with themselves")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="GLOB", help="only variants whose names match"
    )
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME", help=f"repeatable (default there: {', '.join(SHAPES)})"
    )
    parser.add_argument("--cases", type=int, default=60, metavar="N", help="at most, evenly chosen (default: 60)")
    parser.add_argument("--processes", type=int, default=27, metavar="N", help="at most (default: 27)")
    parser.add_argument("--rounds", type=int, default=12, metavar="N", help="of each process (default: 12)")
    parser.add_argument("--limit", type=float, default=330.0, metavar="S", help="seconds for all (default: 330)")
    parser.add_argument("--build-dir", default="build", metavar="DIR")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: try the plumbing, on callables")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Builds and times all of it, and gives what was found.

    Raises:
        CapabilityError: no GPU.
        UsageError: the time was too short for one gate run.
    """
    started = time.monotonic()
    say = progress.plain()
    shapes = tuple(options.shape) or (SHAPES if options.suite == SUITE else ())
    settings = Settings(options.suite, build=options.build_dir, variants=tuple(options.variant), shapes=shapes)
    with tempfile.TemporaryDirectory(prefix="bench-against-") as name:
        scratch = Path(name)
        side = chains.compiled(settings, options.device, say)
        cases = chains.runnable(side, options.device)
        most = min(len(cases), options.cases)
        same = [_same(cases[i * len(cases) // most], scratch / "copies") for i in range(most)]
        job = replace(side.job, folder=scratch, device=options.device, say=say)
        lengths = chains.calibrated(job, scratch / "calibration", say)
        planted = chains.planted(lengths, scratch / "planted", options.device, say)
        say(f"{len(same)} cases compared with themselves, {len(planted)} with a planted slowdown")
        pace = Pace(started + options.limit)
        for processes in range(1, options.processes + 1):  # those before are not run again
            timings = chains.timed(job, [*same, *planted], processes, options.rounds)
            if pace.over():
                break
    times = {c.name: timings.times[c.name] for c in same if c.name in timings.times}
    slowed = {c.name: timings.times[c.name] for c in planted if c.name in timings.times}
    processes = min(map(len, timings.times.values()), default=0)
    if processes < PROCESSES or not times:
        raise UsageError(
            f"--limit {options.limit:g}: expected time for {PROCESSES} processes, found it for {processes}"
        )
    gpu = f"{side.job.gpu.name}, driver {side.job.gpu.driver}" if side.job.gpu else "no GPU"
    return {
        "machine": raw.machine(gpu, f"nvcc {side.built.nvcc}", f"torch {toolchain.version_of('torch')}"),
        "suite": side.job.suite.name,
        "processes": processes,
        "rounds": options.rounds,
        "seconds": round(time.monotonic() - started, 1),
        "throttle": sorted(timings.throttle),
        "lost": {name: f"{lost.side}: {lost.reason}" for name, lost in timings.lost.items()},
        **processes_of(times, slowed),
    }


class Pace:
    """True if the time left fits another process as long as the longest so far."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._last = time.monotonic()
        self._longest = 0.0

    def over(self) -> bool:
        """Asked after each process."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        return now + self._longest > self.deadline


def _same(case: KernelCall, copies: Path) -> Contest:
    """A case against itself: its library, and two copies of it."""
    after = copied(case, copies / "after")
    return Contest.of(case.name, case, after, copies)


# --- results ---------------------------------------------------------------------------------


def dealt(times: Times, deal: Sequence[int]) -> ProcessTimes:
    """The result of a process whose builds have other parts."""
    sides = (times.before, times.after, times.again)
    before, after, again = (sides[i] for i in deal)
    return ProcessTimes.of(before, after, again)


def processes_of(same: Mapping[str, Sequence[Times]], slowed: Mapping[str, Sequence[Times]]) -> dict[str, Any]:
    """Enough to decide all of it again: logarithms of change and of no change, of each process and part.

    Args:
        same: times of the cases whose three builds are one, of every process.
        slowed: times of the planted ones, by names like ``planted_5us_2pct_1x32``.
    """

    def in_roles(times: Times, deal: Sequence[int]) -> list[float]:
        process = dealt(times, deal)
        return [round(process.change, 7), round(process.null, 7)]

    return {
        "processes_of_cases": {
            case: [[in_roles(t, d) for d in DEALS] for t in processes] for case, processes in same.items()
        },
        "processes_of_planted": {
            case: [in_roles(t, DEALS[0]) for t in processes] for case, processes in slowed.items()
        },
    }


def analyse(results: Mapping[str, Any]) -> dict[str, Any]:
    """The false-alarm rate without a change, and the share of detected planted slowdowns."""
    parts = {
        case: [[ProcessTimes(*p) for p in deals] for deals in processes]
        for case, processes in results["processes_of_cases"].items()
    }
    planted = {
        case: [ProcessTimes(*p) for p in processes] for case, processes in results["processes_of_planted"].items()
    }
    count = min([*map(len, parts.values()), *map(len, planted.values())])
    source = random.Random(1)
    draws = []
    # A process has two differences of three builds to give: more draws than that would say nothing new.
    for _ in range(min(math.ceil(COMPARISONS / len(parts)), 2 * count)):
        chosen = source.sample(range(count), PROCESSES)
        draws.append([(process, source.randrange(len(DEALS))) for process in chosen])
    runs = [{case: [processes[p][deal] for p, deal in draw] for case, processes in parts.items()} for draw in draws]
    disjoint = [range(i, i + PROCESSES) for i in range(0, count - PROCESSES + 1, PROCESSES)]
    return {
        "aa": {
            "cases": len(parts),
            "runs": len(runs),
            "comparisons": len(runs) * len(parts),
            "spread": _spread(parts),
            "levels": [
                # One by one: the correction over the cases is taken back.
                _alarms(runs, alpha=level * len(parts), level=level, effect=effect)
                for level in LEVELS
                for effect in (0.0, EFFECT)
            ],
            "default": _alarms(runs, alpha=ALPHA, level=ALPHA / len(parts), effect=EFFECT),
            "disjoint": _alarms(
                [{case: [processes[p][0] for p in group] for case, processes in parts.items()} for group in disjoint],
                alpha=ALPHA, level=ALPHA / len(parts), effect=EFFECT,
            ),
        },
        "planted": _detected(parts, planted, draws, disjoint),
    }  # fmt: skip


def _spread(parts: Mapping[str, Sequence[Sequence[ProcessTimes]]]) -> dict[str, Any]:
    """The A/A spread between processes, as a share: its median and maximum over the cases."""
    spreads = {
        case: math.sqrt(statistics.fmean(p.null**2 for deals in processes for p in deals))
        for case, processes in parts.items()
    }
    worst = max(spreads, key=lambda case: spreads[case])
    return {"median": statistics.median(spreads.values()), "worst": spreads[worst], "worst_case": worst}


def _alarms(
    runs: Sequence[Mapping[str, Sequence[ProcessTimes]]], *, alpha: float, level: float, effect: float
) -> dict[str, Any]:
    decisions = [decide(run, alpha=alpha, effect=effect) for run in runs]
    slower = [sum(d.outcome == "slower" for d in by_case.values()) for by_case in decisions]
    trials = sum(map(len, decisions))
    undecided = sum(d.outcome == "undecided" for by_case in decisions for d in by_case.values())
    return {
        "level": level,
        "effect": effect,
        "alarms": sum(slower),
        "comparisons": trials,
        "runs_with_alarms": sum(map(bool, slower)),
        "undecided": undecided,
    }


def _detected(
    parts: Mapping[str, Sequence[Sequence[ProcessTimes]]],
    planted: Mapping[str, Sequence[ProcessTimes]],
    draws: Sequence[Sequence[tuple[int, int]]],
    disjoint: Sequence[range],
) -> list[dict[str, Any]]:
    """For each duration and slowdown: what was measured, and in how many gate runs it was called slower."""
    groups: dict[tuple[str, str], list[str]] = {}
    for case in planted:
        _, us, slower, _ = case.split("_")
        groups.setdefault((us, slower), []).append(case)
    verdicts: dict[str, dict[str, list[bool]]] = {case: {"draws": [], "disjoint": []} for case in planted}
    for kind, chosen in (
        ("draws", [[p for p, _ in draw] for draw in draws]),
        ("disjoint", [list(group) for group in disjoint]),
    ):
        for run in chosen:
            cases = {case: [processes[p][0] for p in run] for case, processes in parts.items()}
            cases |= {case: [processes[p] for p in run] for case, processes in planted.items()}
            decisions = decide(cases)
            for case, processes in verdicts.items():
                processes[kind].append(decisions[case].outcome == "slower")
    rows = []
    for (us, slower), cases_of in groups.items():
        changes = [p.change for case in cases_of for p in planted[case]]
        row: dict[str, Any] = {"duration": us, "planted": slower, "kernels": len(cases_of)}
        row["measured"] = math.expm1(statistics.fmean(changes))
        for kind in ("disjoint", "draws"):
            hits = [hit for case in cases_of for hit in verdicts[case][kind]]
            row[kind] = {"found": sum(hits), "runs": len(hits)}
        rows.append(row)
    return rows


def table(result: Mapping[str, Any]) -> list[str]:
    """The results as lines of text."""
    results = analyse(result)
    aa = results["aa"]
    spread = aa["spread"]
    lines = [
        f"machine: {result['machine']}",
        f"timed:   {result['processes']} processes, {result['rounds']} rounds each, {result['seconds']:.0f} s in all"
        + (f"; held back by {', '.join(result['throttle'])}" if result["throttle"] else ""),
        *(f"lost:    {name}: {reason}" for name, reason in result["lost"].items()),
        "",
        f"A/A: {aa['comparisons']:,} comparisons: {aa['runs']} gate runs of {aa['cases']} cases of {result['suite']}",
        f"spread from process to process: {100 * spread['median']:.3f} % in the middle of the cases, "
        f"{100 * spread['worst']:.2f} % for {spread['worst_case']}",
        f"{'chance a comparison':>22}{'effect':>8}{'expected':>10}{'slower':>8}",
    ]
    for row in aa["levels"]:
        lines.append(_level(f"{row['level']:g}", row))
    default, disjoint = aa["default"], aa["disjoint"]
    trials, alarms = disjoint["comparisons"], disjoint["alarms"]
    bound = 100 * binomial_upper(alarms, trials)
    lines += [
        _level(f"{ALPHA:g} a gate run", default),
        f"at the defaults: {default['runs_with_alarms']} of {aa['runs']} gate runs raised an alarm, "
        f"{default['undecided']} comparisons were too noisy to decide",
        f"of them {trials} share no process and are at most independent: {alarms} alarms there, so the rate of false "
        f"alarms of a comparison is below {bound:.1f} % (95 % confidence)",
        "",
        f"{'planted':>10}{'duration':>10}{'measured':>10}{'disjoint runs':>16}{'drawn runs':>16}",
    ]
    for row in results["planted"]:
        rates = [f"{row[kind]['found']} of {row[kind]['runs']}" for kind in ("disjoint", "draws")]
        measured = f"{100 * row['measured']:+.2f} %"
        lines.append(f"{row['planted']:>10}{row['duration']:>10}{measured:>10}{rates[0]:>16}{rates[1]:>16}")
    return lines


def _level(name: str, row: Mapping[str, Any]) -> str:
    expected = f"≤ {row['level'] * row['comparisons']:.2f}"
    effect = f"{100 * row['effect']:g} %"
    return f"{name:>22}{effect:>8}{expected:>10}{row['alarms']:>8}"


if __name__ == "__main__":
    sys.exit(main())
