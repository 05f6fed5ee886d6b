"""Alarms of `flashcore trends` on generated nights, against what was planted.

The generator and the score below were committed before the detector was written. A seed gives 400 series of 120 nights:

- The logarithm of a time has a standard deviation ("sigma") of 0.2 to 1.5 %, by series: one half of the series is
  normal, the other has Student's t with 3 degrees of freedom, scaled to that deviation.
- 5 % of the series have two levels 1 to 6 % apart; each night takes one at random. Their sigma includes the levels.
- The temperature moves all times by ± 0.5 % in a week; a series lags behind by up to one night.
- Two driver changes each move 30 % of the series by up to ± 3 %.
- Three nights ran on another GPU: all its times differ by one factor of up to ± 3 %, and each series' by its own
  0.5 % (standard deviation).
- Machine code changes without effect (harmless rewrites) in 1 to 30 % of the nights, by series; a tenth of the series,
  the references, never changes.
- 15 % of the series get slower by 3 sigma + 1 % in one night; 10 % by three steps of 2 %, 4 to 14 nights apart. Machine
  code changes in each of these nights.

The score counts what an engineer would have been told each morning, from the nights up to then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import raw
from extensions.trends.benchmarks.stores import written
from flashcore.errors import Exit
from flashcore.records.index import Index
from flashcore_trends import detect

SERIES, NIGHTS = 400, 120
STEPS, DRIFTS, REFERENCES, TWO_LEVELS = 0.15, 0.10, 0.10, 0.05
#: An alarm is in time up to this many nights after a step's first one; and after the last step of a drift.
IN_TIME, IN_TIME_OF_DRIFT = 3, 7
#: The detector and its constants were chosen on seeds 501 to 524, of which the first group are some; it met the others
#: only in this benchmark, once. Earlier detectors, each with its own held-out seeds: 101 to 104 (1.7 % of unchanged
#: series alarmed, 95.0 % of steps found), 201 to 204 (1.0 %, 93.8 %), 201 to 204 with 301 to 304 (1.04 %, 94.4 %),
#: 401 to 408 (0.8 %, 94.2 %), 901 to 908 (1.1 %, 96.0 %). After the last, three constants were made stricter.
TUNED, HELD_OUT = (501, 502, 503, 504), (1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008)
#: Each figure's goal in percent, and whether it is a lower bound.
GOALS = {
    "unchanged alarmed": (1, False),
    "steps found": (95, True),
    "drifts found": (90, True),
    "moves blamed": (2, False),
}
#: Seconds to index, and to ask, this many runs.
RUNS, INDEXED, ASKED = 10_000, 60.0, 0.2


class Planted(NamedTuple):
    """A series' truth.

    Args:
        kind: ``step``, ``drift`` or ``unchanged``.
        nights: the nights in which the kernel itself got slower.
        sigma: standard deviation of the logarithm of its times, as far as no planted change explains it.
        moved: the nights of driver changes that moved it.
    """

    kind: str
    nights: tuple[int, ...]
    sigma: float
    moved: tuple[int, ...]
    two_levels: bool


class Nights(NamedTuple):
    """Generated nights: ``us[s, n]`` and the machine code ``code[s, n]`` of series ``s`` in night ``n``; the driver and
    the GPU of each night; the truth."""

    us: np.ndarray[Any, Any]
    code: np.ndarray[Any, Any]
    drivers: list[str]
    gpus: list[str]
    planted: list[Planted]


def generated(seed: int) -> Nights:
    """The nights of a seed."""
    source = np.random.default_rng(seed)
    shape = (SERIES, NIGHTS)
    sigma = source.uniform(0.002, 0.015, SERIES)
    heavy = np.arange(SERIES) % 2 == 1
    noise = np.where(heavy[:, None], source.standard_t(3, shape) / np.sqrt(3), source.standard_normal(shape))
    log_us = np.log(source.uniform(5, 5000, SERIES))[:, None] + sigma[:, None] * noise

    two_levels = np.zeros(SERIES, bool)
    two_levels[source.choice(SERIES, round(TWO_LEVELS * SERIES), replace=False)] = True
    gap, share = source.uniform(0.01, 0.06, SERIES), source.uniform(0.1, 0.5, SERIES)
    log_us += np.where(two_levels[:, None] & (source.random(shape) < share[:, None]), gap[:, None], 0)
    sigma = np.sqrt(sigma**2 + np.where(two_levels, share * (1 - share) * gap**2, 0))

    days = np.arange(NIGHTS)[None] - source.uniform(0, 1, SERIES)[:, None] + source.uniform(0, 7)
    log_us += 0.005 * np.sin(2 * np.pi * days / 7)

    drivers = ["580.10"] * NIGHTS
    moved: list[list[int]] = [[] for _ in range(SERIES)]
    for number, night in enumerate(sorted(int(n) for n in source.choice(np.arange(15, 110), 2, replace=False))):
        drivers[night:] = [f"580.{20 + number}"] * (NIGHTS - night)
        for s in source.choice(SERIES, round(0.3 * SERIES), replace=False):
            log_us[s, night:] += source.uniform(-0.03, 0.03)
            moved[s].append(night)

    gpus = ["GPU-usual"] * NIGHTS
    other = source.choice(np.arange(1, NIGHTS), 3, replace=False)
    for night in other:
        gpus[night] = "GPU-other"
    log_us[:, other] += source.uniform(-0.03, 0.03) + source.normal(0, 0.005, SERIES)[:, None]

    rewrites = np.exp(source.uniform(np.log(0.01), np.log(0.3), SERIES))
    rewrites[source.choice(SERIES, round(REFERENCES * SERIES), replace=False)] = 0
    changed = source.random(shape) < rewrites[:, None]
    kernels = source.permutation(np.flatnonzero(rewrites))  # references do not change
    steps, drifts = round(STEPS * SERIES), round(DRIFTS * SERIES)
    slower: dict[int, tuple[str, tuple[int, ...]]] = {}
    for s in kernels[:steps]:
        night = int(source.integers(30, NIGHTS - IN_TIME - 1))
        slower[int(s)] = ("step", (night,))
        log_us[s, night:] += np.log1p(3 * sigma[s] + 0.01)
    for s in kernels[steps : steps + drifts]:
        first, *gaps = source.integers((30, 4, 4), (80, 15, 15))
        nights = tuple(int(n) for n in np.cumsum([first, *gaps]))
        slower[int(s)] = ("drift", nights)
        for night in nights:
            log_us[s, night:] += np.log1p(0.02)
    for s, (_, nights) in slower.items():
        changed[s, list(nights)] = True
    planted = [
        Planted(*slower.get(s, ("unchanged", ())), float(sigma[s]), tuple(moved[s]), bool(two_levels[s]))
        for s in range(SERIES)
    ]
    return Nights(np.exp(log_us), np.cumsum(changed, axis=1), drivers, gpus, planted)


# --- the score -----------------------------------------------------------------------------------


class Alarm(NamedTuple):
    """A change that was blamed on a kernel.

    Args:
        raised: the night after which it was reported for the first time.
        at: the first night of the new level, as reported then.
    """

    raised: int
    at: int


def score(planted: Sequence[Planted], alarms: Mapping[int, Sequence[Alarm]]) -> dict[str, list[int]]:
    """Successes and trials of each figure.

    Args:
        alarms: by series; a change to a faster level is an alarm too.
    """
    figures: dict[str, list[int]] = {
        name: [0, 0] for name in ("unchanged alarmed", "steps found", "drifts found", "moves blamed")
    }

    def count(name: str, success: bool) -> None:
        figures[name][0] += success
        figures[name][1] += 1

    for s, truth in enumerate(planted):
        raised = alarms.get(s, ())
        if truth.kind == "unchanged":
            count("unchanged alarmed", bool(raised))
        elif truth.kind == "step":
            (night,) = truth.nights
            count("steps found", any(night <= a.raised < night + IN_TIME and a.at >= night - 2 for a in raised))
        else:
            last = truth.nights[-1] + IN_TIME_OF_DRIFT
            count("drifts found", any(truth.nights[0] <= a.raised < last for a in raised))
        for move in truth.moved:
            near = [a for a in raised if abs(a.at - move) <= 3]
            count("moves blamed", any(all(abs(a.at - n) > 3 for n in truth.nights) for a in near))
    return figures


# --- the detector --------------------------------------------------------------------------------


def replayed(nights: Nights) -> dict[int, list[Alarm]]:
    """The alarms of each series, as `flashcore trends` raises them in the mornings, each with the nights before it."""
    logs = np.log(nights.us)
    levels = logs - detect.night_effects(logs, nights.code)  # a night's effect does not depend on later nights
    names = [f"{driver} {gpu}" for driver, gpu in zip(nights.drivers, nights.gpus, strict=True)]
    machine = np.unique(names, return_inverse=True)[1]
    alarms: dict[int, list[Alarm]] = {}
    for count in range(detect.BEFORE + detect.AFTER, NIGHTS + 1):
        part = slice(max(0, count - detect.WINDOW), count)  # earlier windows were searched on earlier mornings
        far = detect.spreads(levels[:, :count], nights.code[:, :count], machine[:count])[part]
        for s in range(SERIES):
            for change in detect.window(levels[s, part], nights.code[s, part], machine[part], far, cut=part.start > 0):
                at = change.at + part.start
                raised = alarms.setdefault(s, [])
                if change.blame == "kernel" and all(abs(at - a.at) > detect.SAME for a in raised):
                    raised.append(Alarm(count - 1, at))
    return alarms


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tuned", type=int, nargs="*", default=TUNED, metavar="SEED", help="seeds tuned on")
    parser.add_argument("--held-out", type=int, nargs="*", default=HELD_OUT, metavar="SEED", help="seeds not tuned on")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="runs to index (default: %(default)s)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The alarms of each seed, and the seconds of the index."""
    return {
        "machine": raw.machine(f"numpy {np.__version__}"),
        **dict(zip(("tuned", "held_out"), _replays(options), strict=True)),
        "index": _indexed(options.runs) if options.runs else None,
    }


def _replays(options: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """The replays of both groups of seeds."""
    with ProcessPoolExecutor(options.workers) as workers:
        groups = [[workers.submit(_seed, seed) for seed in seeds] for seeds in (options.tuned, options.held_out)]
        for group in groups:
            yield [replay.result() for replay in group]


def _seed(seed: int) -> dict[str, Any]:
    started = time.process_time()
    alarms = replayed(generated(seed))
    print(f"seed {seed}: {time.process_time() - started:.0f} s", file=sys.stderr)
    return {"seed": seed, "seconds": round(time.process_time() - started, 1), "alarms": alarms}


def _indexed(runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-trends-") as name:
        folder = Path(name)
        written(folder, runs)
        started = time.perf_counter()
        Index([folder])
        indexed = time.perf_counter() - started
        seconds = []
        for _ in range(5):
            started = time.perf_counter()
            points = Index([folder]).points("time", "fast", "mission")
            seconds.append(round(time.perf_counter() - started, 4))
            assert len(points) == runs, "a benchmark of an empty answer says nothing"
    return {"runs": runs, "index": round(indexed, 2), "ask": seconds}


def scores(results: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The pooled figures of some seeds."""
    pooled: dict[str, list[int]] = {name: [0, 0] for name in GOALS}
    for one in results:
        alarms = {int(s): [Alarm(*a) for a in raised] for s, raised in one["alarms"].items()}
        for name, (successes, trials) in score(generated(one["seed"]).planted, alarms).items():
            pooled[name] = [pooled[name][0] + successes, pooled[name][1] + trials]
    return pooled


def table(results: Mapping[str, Any]) -> list[str]:
    """The figures as lines of text."""
    lines = [f"machine: {results['machine']}"]
    for group, title in (("tuned", "seeds that the constants were chosen on"), ("held_out", "held-out seeds")):
        seeds = results[group]
        lines += ["", f"{title}: {', '.join(str(x['seed']) for x in seeds)} ({sum(x['seconds'] for x in seeds):.0f} s)"]
        for name, (successes, trials) in scores(seeds).items():
            goal, least = GOALS[name]
            share = 100 * successes / max(1, trials)
            word = "met" if (share >= goal if least else share <= goal) else "MISSED"
            lines.append(
                f"  {name:18}{successes:5} of {trials:5}{share:7.1f} %  goal {'≥' if least else '≤'} {goal} %: {word}"
            )
    if index := results["index"]:
        word = "met" if index["index"] <= INDEXED and max(index["ask"]) <= ASKED else "MISSED"
        lines += [
            "",
            f"{index['runs']:,} runs: indexed in {index['index']:.1f} s, asked in {max(index['ask']):.3f} s: {word}",
        ]
    return lines


def verdict(results: Mapping[str, Any]) -> int:
    return Exit.FAILED if any("MISSED" in line for line in table({**results, "tuned": []})) else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
