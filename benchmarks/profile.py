"""The profile stage's time, compared with ncu alone: ``python -m benchmarks.profile`` (needs a GPU and ncu).

The *stage* is what ``flashcore profile`` runs: ncu in batches, its journal, the import of its reports, the
facts. The *bare* run is one ncu process around the same target with the same metrics on the same launches,
writing its report and nothing else. Both run in turns; medians and their ratio are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.cli import progress
from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import ncu, python_process, toolchain
from flashcore.model.settings import Settings
from flashcore.pipeline.opening import open_context
from flashcore.runner.journal import Task
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.compiling import compile_all
from flashcore.stages.profile import code, profile
from flashcore.stages.runnable_cases import child_cases


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument(
        "--variant", action="append", default=[], metavar="GLOB", help="only variants whose names match"
    )
    parser.add_argument("--shape", action="append", default=[], metavar="NAME", help="only this shape; repeatable")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N cases; the table says so")
    parser.add_argument("--build-dir", default="build", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: 3)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Builds, runs both in turns and gives the seconds.

    Raises:
        CapabilityError: no GPU, or no ncu.
    """
    settings = Settings(
        suite=options.suite, build=options.build_dir, variants=tuple(options.variant), shapes=tuple(options.shape)
    )
    say = progress.plain()
    job = open_context(settings)
    if job.gpu is None or job.gpu_arch is None:
        raise CapabilityError("no GPU that runs the suite's archs", "run it on a machine with one")
    program = ncu.find_ncu()
    build = compile_all(replace(job, say=say))
    gpu, job = job.gpu, replace(job, built=build, say=say)
    built = {a.variant for a in build.artifacts if a.arch == job.gpu_arch and a.library is not None}
    plans = {f"{p.variant}/{p.shape}": p for p in build.plans}
    refused = {name for name, plan in plans.items() if plan.error}
    pairs = [
        (v, s)
        for v, s in job.cases("profile")
        if (v.is_reference or v.name in built) and f"{v.name}/{s.name}" not in refused
    ]
    total = len(pairs)
    cases = sorted(child_cases(job, pairs[: options.limit]), key=lambda case: case.is_reference)  # the stage's order
    chip = profile.required_chip(gpu.capability)
    builds, codes = code.builds(job), code.codes(job)
    version = toolchain.tool_version(program)
    stage: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as scratch:
        for number in range(options.rounds):
            folder = Path(scratch) / f"round-{number}"
            folder.mkdir()
            # In turns, and the first in turns as well: whoever runs second finds warm disk caches.
            todo = [("stage", stage), ("bare", bare)]
            for what, series in todo if number % 2 == 0 else reversed(todo):
                started = time.perf_counter()
                references = {case.variant for case in cases if case.is_reference}
                chosen = profile.Profiling(ncu=program, chip=chip, references=references, builds=builds, codes=codes)
                (_stage if what == "stage" else _bare)(_tasks(cases), folder / what, chosen)
                series.append(time.perf_counter() - started)
                say(f"round {number}: {what} {series[-1]:.2f} s")
    return {
        "machine": raw.machine(gpu.name, f"driver {gpu.driver}", f"ncu {version}",
                               f"torch {toolchain.version_of('torch')}"),
        "suite": job.suite.name, "cases": [case.name for case in cases], "of": total, "stage": stage, "ncu": bare,
    }  # fmt: skip


def table(results: Mapping[str, Any]) -> list[str]:
    """The results as lines of text."""
    stage, bare = results["stage"], results["ncu"]
    lines = [
        f"machine: {results['machine']}",
        f"cases:   {len(results['cases'])} of {results['of']} of suite {results['suite']}, {len(stage)} rounds each",
        "",
        f"{'':24}{'median':>10}{'least':>10}{'most':>10}",
    ]
    for name, series in (("profile stage", stage), ("ncu alone", bare)):
        values = (statistics.median(series), min(series), max(series))
        lines.append(f"{name:24}" + "".join(f"{v:>8.2f} s" for v in values))
    ratio = statistics.median(stage) / statistics.median(bare)
    return [*lines, f"{'ratio of the medians':24}{ratio:>8.3f} ×"]


def _stage(tasks: Sequence[Task], folder: Path, chosen: profile.Profiling) -> None:
    result = profile.profiled(tasks, folder, chosen)
    if bad := [o for o in result.outcomes if o.status != "ok"]:
        raise FlashcoreError(f"{bad[0].case}: expected to be profiled, found: {bad[0].reason}")


def _bare(tasks: Sequence[Task], folder: Path, chosen: profile.Profiling) -> None:
    folder.mkdir()
    for metrics, group in profile.under_ncu(tasks, chosen).groups(tasks):
        _ncu(group, folder / str(len(metrics)), Path(chosen.ncu), metrics)


def _tasks(cases: Sequence[KernelCall]) -> list[Task]:
    return [Task(case.name, {"case": case.to_json(), "device": "cuda"}) for case in cases]


def _ncu(tasks: Sequence[Task], folder: Path, program: Path, metrics: list[str]) -> None:
    folder.mkdir()
    task_file = folder / "tasks.json"
    content = {"tasks": [{"name": task.name, "payload": task.payload} for task in tasks]}
    task_file.write_text(json.dumps(content), encoding="utf-8")
    target = profile.TARGET(task_file, folder / "journal.jsonl")
    command = ncu.command_line(program, folder / "bare.ncu-rep", metrics, target)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=python_process.environment())
    if done.returncode != 0:
        raise FlashcoreError(
            f"ncu alone ended with exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
        )


if __name__ == "__main__":
    sys.exit(main())
