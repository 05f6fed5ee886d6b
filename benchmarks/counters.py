"""Are the counters of CUPTI's range profiler, read in the process that times, those of ncu?

    python -m benchmarks.counters [--suite DIR] [--shape NAME] [--kernels N]

N kernels of the suite, of one launch each, are counted twice by either. A count that both of ncu's runs agree on must
be equal. Of any other fact it is shown whether the range of CUPTI's runs meets that of ncu's, which prints two
decimals, and whether the first limiter and advice are the same. Seconds are per kernel, once the process runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import raw
from flashcore.errors import CapabilityError
from flashcore.explain.advice import advice
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.features.watch import child
from flashcore.model.catalogue import FACTS, Kind
from flashcore.model.record import Measured, StageNote, StageResult
from flashcore.model.settings import Settings
from flashcore.pipeline.make_record import joined
from flashcore.pipeline.opening import open_recordable
from flashcore.records import store
from flashcore.stages.compiling import compile_all
from flashcore.stages.formulas import formula_facts
from flashcore.stages.profile import cupti as by_cupti
from flashcore.stages.profile import profile
from flashcore.stages.runnable_cases import child_cases

_RUNS = 2
#: What ncu's two decimals leave open.
_RESOLUTION = 0.005


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if a count differs."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda r: int(bool(_figures(r)["unequal"])))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--shape", default="mission", metavar="NAME")
    parser.add_argument("--kernels", type=int, default=10, metavar="N", help="evenly chosen (default: %(default)s)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Counts each kernel by CUPTI and by ncu.

    Raises:
        CapabilityError: no GPU, or one of the two cannot measure.
    """
    with tempfile.TemporaryDirectory(prefix="flashcore-bench-") as name:
        settings = Settings(options.suite, build=f"{name}/build", shapes=(options.shape,), upto="profile", join=False)
        context = open_recordable(settings)
        gpu = context.gpu
        if gpu is None:
            raise CapabilityError("no GPU", "run on a machine with one")
        arch = context.gpu_arch or ""
        runs = [v for v in context.variants if not v.is_reference and arch in v.where.archs]
        chosen = runs[:: max(1, len(runs) // (2 * options.kernels))]
        context = replace(
            context, options=replace(context.options, archs=(arch,)), variants=tuple(chosen), resident=child.TARGET
        )
        built = compile_all(context, formula_facts(context))
        single = [v for v in chosen if any(p.variant == v.name and len(p.launches) == 1 for p in built.plans)]
        context = replace(context, built=built, variants=tuple(single[: options.kernels]))
        pairs = [(v, s) for v, s in context.cases("profile")]
        cases = child_cases(context, pairs)
        context.workers.stays = True
        results: dict[str, Any] = {"machine": raw.machine(), "gpu": gpu.name, "runs": {"cupti": [], "ncu": []}}
        with context.workers, context.workers.leased(context.say):
            for number in range(_RUNS):
                one = replace(context, folder=Path(name, f"cupti-{number}"))
                results["runs"]["cupti"].append(_described(one, by_cupti.run(one, cases, cases)))
            context.workers.close()  # ncu and CUPTI exclude each other
            for number in range(_RUNS):
                one = replace(context, folder=Path(name, f"ncu-{number}"))
                results["runs"]["ncu"].append(_described(one, profile.run(one, cases)))
    return results


def _described(context: Any, result: StageResult) -> dict[str, Any]:
    """Of each case: seconds, facts, limiters, advice."""
    measured = Measured().plus(result, StageNote("profile", "ok", 0.0))
    record = joined(context, store.new_id(), measured, [])
    cases: dict[str, Any] = {}
    for outcome in result.outcomes:
        readings = Readings(record)
        cases[str(outcome.case)] = {
            "status": outcome.status,
            "seconds": outcome.seconds,
            "facts": {
                f.name: f.value for f in result.facts if f.subject.variant == outcome.variant and not f.subject.kernel
            },
            "limiters": [x.kind for x in time_parts(readings, outcome.case).limiters],
            "advice": [x.rule for x in advice(readings, outcome.case)],
        }
    return cases


# --- figures --------------------------------------------------------------------------------------


def _compared(results: Mapping[str, Any]) -> Iterator[tuple[str, str, list[float], list[float]]]:
    """Case, fact, values of CUPTI's runs, values of ncu's."""
    cupti, ncu = results["runs"]["cupti"], results["runs"]["ncu"]
    for case, of_ncu in ncu[0].items():
        for name in of_ncu["facts"]:
            values = [[run[case]["facts"].get(name) for run in runs] for runs in (cupti, ncu)]
            if all(isinstance(v, int | float) for vs in values for v in vs):
                yield case, name, values[0], values[1]


def _figures(results: Mapping[str, Any]) -> dict[str, Any]:
    unequal: list[str] = []
    gaps: list[tuple[float, str]] = []
    counts, rates, within = 0, 0, 0
    for case, name, cupti, ncu in _compared(results):
        low, high = min(ncu), max(ncu)
        if FACTS[name].kind is Kind.COUNTER and FACTS[name].unit in ("1", "B") and low == high:
            counts += 1
            if set(cupti) != {low}:
                unequal.append(f"{case} {name}: {cupti}, ncu {low}")
            continue
        rates += 1
        within += min(cupti) <= high + _RESOLUTION and max(cupti) >= low - _RESOLUTION
        gap = max(min(cupti) - high, low - max(cupti), 0.0)
        gaps.append((gap / high if high else 0.0, f"{case} {name}: {cupti}, ncu {ncu}"))
    cases = results["runs"]["ncu"][0]
    same = Counter(
        what
        for case in cases
        for what in ("limiters", "advice")
        if {tuple(r[case][what][:1]) for r in results["runs"]["cupti"]}
        <= {tuple(r[case][what][:1]) for r in results["runs"]["ncu"]}
    )
    seconds = {by: [c["seconds"] for run in runs for c in run.values()] for by, runs in results["runs"].items()}
    first = results["runs"]["ncu"][0][next(iter(cases))]["facts"]
    lacking = [
        n
        for n in first
        if first[n] is not None and results["runs"]["cupti"][0][next(iter(cases))]["facts"].get(n) is None
    ]
    return {
        "cases": len(cases), "counts": counts, "unequal": unequal, "rates": rates, "within": within,
        "farthest": sorted(gaps, reverse=True)[:10], "same": same, "lacking": lacking,
        "seconds": {by: median(s) for by, s in seconds.items()},
    }  # fmt: skip


def table(results: Mapping[str, Any]) -> list[str]:
    """The figures, for reading."""
    f = _figures(results)
    return [
        f"{results['gpu']}, {results['machine']}",
        f"{f['counts'] - len(f['unequal'])} of {f['counts']} counts of {f['cases']} kernels are equal",
        *(f"  {line}" for line in f["unequal"][:20]),
        f"{f['within']} of {f['rates']} other facts lie within ncu's two runs; the farthest:",
        *(f"  {100 * gap:.1f} %: {line}" for gap, line in f["farthest"]),
        f"first limiter the same for {f['same']['limiters']}, first advice for {f['same']['advice']}",
        f"seconds per kernel: CUPTI {f['seconds']['cupti']:.2f}, ncu {f['seconds']['ncu']:.2f}",
        f"unmeasured by CUPTI: {', '.join(f['lacking'])}",
    ]


if __name__ == "__main__":
    sys.exit(main())
