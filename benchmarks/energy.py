"""Whether joules repeat: ``python -m benchmarks.energy`` (needs a GPU).

Ten kernels of the attention suite are built once and measured several times, in a new process and a new random order
each time, as ``bench --energy`` measures them. Accepted is, for each kernel: every repetition has an energy, and the
largest is at most 2 % above the least. Exit code 0 if so, 1 if not, 4 without a GPU.
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
from flashcore.features.energy.measure import measure as energy_of
from flashcore.model.settings import Settings
from flashcore.pipeline import plugins
from flashcore.pipeline.opening import open_context
from flashcore.runner.queue import Pool
from flashcore.stages.compiling import compile_all
from flashcore.stages.formulas import formula_facts
from flashcore.stages.runnable_cases import child_cases

SUITE, SHAPE = raw.ROOT / "kernels" / "attention", "mission"
KERNELS = (
    "scalar_row", "unfused_wmma", "fused_wmma", "warp_softmax", "atomic_o",
    "cp_async_2stage", "register_softmax", "mma_registers", "mma_split_keys", "tma_split_keys",
)  # fmt: skip
SPREAD = 0.02


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--kernels", nargs="*", default=KERNELS, metavar="VARIANT", help="default: ten of the suite")
    parser.add_argument("--build", default="build", metavar="DIR", help="compiled objects (default: %(default)s)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All facts of each repetition, by kernel."""
    plugins.load()
    settings = Settings(str(SUITE), build=options.build, shapes=(SHAPE,), upto=None)
    context = replace(open_context(settings), say=lambda text: print(text, file=sys.stderr))
    if context.cannot_measure or context.gpu_arch is None:
        raise CapabilityError(context.cannot_measure, "run it on a machine with a GPU")
    pairs = [(v, s) for v, s in context.cases("bench") if v.name in options.kernels]
    archs = replace(context.options, archs=(context.gpu_arch,))
    context = replace(context, options=archs, variants=tuple(v for v, _ in pairs))
    context = replace(context, built=compile_all(context, formula_facts(context)))
    cases = child_cases(context, pairs)
    repetitions = []
    with tempfile.TemporaryDirectory(prefix="bench-energy-") as scratch:
        for number in range(options.repetitions):
            with Pool() as workers:
                here = replace(context, workers=workers, folder=Path(scratch) / str(number))
                facts = energy_of(here, random.sample(cases, len(cases)))
            by_kernel: dict[str, dict[str, Any]] = {name: {} for name in options.kernels}
            for fact in facts:
                by_kernel[fact.subject.variant][fact.name] = fact.note if fact.value is None else fact.value
            repetitions.append(by_kernel)
    return {"machine": raw.machine(str(context.gpu and context.gpu.name)), "repetitions": repetitions}


def spread(values: Sequence[Any]) -> float | None:
    """The largest over the least, less 1; ``None`` if one is unmeasured."""
    numbers = [x for x in values if isinstance(x, float)]
    return max(numbers) / min(numbers) - 1 if numbers and len(numbers) == len(values) else None


def _kernels(results: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """By kernel and fact, the value of each repetition, or why it has none."""
    repetitions = results["repetitions"]
    return {
        name: {fact: [r[name].get(fact, "not built") for r in repetitions] for fact in ("energy", "power")}
        for name in repetitions[0]
    }


def table(results: Mapping[str, Any]) -> list[str]:
    """The figures as lines of text."""
    lines = [f"machine: {results['machine']}, {len(results['repetitions'])} repetitions"]
    for name, facts in _kernels(results).items():
        apart = spread(facts["energy"])
        if apart is None:
            lines.append(f"  {name:18} unmeasured: {next(x for x in facts['energy'] if not isinstance(x, float))}")
            continue
        mj, watts = (statistics.fmean(facts[fact]) for fact in ("energy", "power"))
        word = "met" if apart <= SPREAD else "MISSED"
        lines.append(f"  {name:18}{mj:10.3f} mJ{watts:8.0f} W   apart by {100 * apart:5.2f} %: {word}")
    return lines


def verdict(results: Mapping[str, Any]) -> int:
    apart = [spread(facts["energy"]) for facts in _kernels(results).values()]
    return Exit.OK if all(x is not None and x <= SPREAD for x in apart) else Exit.FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
