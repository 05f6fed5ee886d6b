"""The gate's time: no change, one changed kernel, and records of ten thousand cases.

    python -m benchmarks.gate [--suite DIR] [--cases N] [--archs SM ...]

The suite is copied to a temporary folder, for four archs if it names fewer, and built there once; what is
timed is the command itself, a fresh process each time, with its processor time and its largest memory beside
it. The large records are synthetic, written and read as any other: one that passes, and one that misses half
of its limits, judged into every format that the Action writes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.model.suite import Cuda
from flashcore.records import store
from flashcore.suites import load as suite_module

ROOT = Path(__file__).parent.parent
ARCHS = 4
#: Archs to fill up with. Both have what sm_89 has: a variant that says it cannot run there cannot here.
MORE_ARCHS = ("sm_86", "sm_87")
ALIKE = "sm_89"
REPEATS = 5
MOST_MIB = 1024
FORMATS = ("github", "sarif=gate.sarif", "junit=gate.xml", "json=gate.json")


@dataclass(frozen=True, slots=True)
class Timed:
    """One command: seconds on the clock and on the processors (with all that it started), MiB, exit code."""

    seconds: float
    cpu: float
    memory: float
    code: int


def timed(command: Sequence[str], folder: Path) -> Timed:
    """Runs ``flashcore COMMAND``; a gate that fails has done its work too."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "harness"), os.environ.get("PYTHONPATH")))),
    }
    environment.pop("GITHUB_STEP_SUMMARY", None)
    with (folder / "said").open("w+b") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "flashcore", *command], cwd=folder, env=environment, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1, 3):
            output.seek(0)
            raise SystemExit(output.read().decode(errors="replace")[-4000:])
    return Timed(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, process.returncode)


def row(what: str, runs: Sequence[Timed], target: float | None) -> dict[str, Any]:
    """The timed run as it is written to the file; also prints it."""
    made = {"what": what, "target": target, "runs": [asdict(r) for r in runs]}
    print(shown(made), file=sys.stderr, flush=True)
    return made


def met(results: Mapping[str, Any]) -> bool:
    """True if a row's median and memory meet its target."""
    runs, target = results["runs"], results["target"]
    median, memory = statistics.median(r["seconds"] for r in runs), max(r["memory"] for r in runs)
    return target is None or (median < target and memory < MOST_MIB)


def shown(results: Mapping[str, Any]) -> str:
    """One line: median, spread, processor time, memory, and whether the target is met."""
    target, runs = results["target"], results["runs"]
    seconds = [r["seconds"] for r in runs]
    median, memory, cpu = statistics.median(seconds), max(r["memory"] for r in runs), [r["cpu"] for r in runs]
    spread = f"[{min(seconds):.2f}, {max(seconds):.2f}]"
    judged = (
        "" if target is None else f"  target < {target:g} s, < {MOST_MIB} MiB: {'met' if met(results) else 'MISSED'}"
    )
    used = f"cpu {statistics.median(cpu):6.2f} s {memory:5.0f} MiB"
    return f"{results['what']:54} {median:6.2f} s {spread:16} {used}{judged}"


def with_archs(manifest: Path, named: Sequence[str]) -> None:
    """Has the copied suite build for ``named``, or for as many more archs as it lacks of :data:`ARCHS`."""
    text = manifest.read_text(encoding="utf-8")
    line = re.search(r"^archs = \[(.*)\]$", text, re.MULTILINE)
    if line is None:
        raise SystemExit(f"{manifest}: expected a line `archs = [...]`, found none")
    archs = re.findall(r"sm_\w+", line[1])
    more = [a for a in MORE_ARCHS if a not in archs][: max(0, ARCHS - len(archs))]
    wanted = ", ".join(f'"{a}"' for a in named or [*archs, *more])
    text = f"{text[: line.start()]}archs = [{wanted}]{text[line.end() :]}"
    manifest.write_text(text, encoding="utf-8")
    for path in manifest.parent.rglob("*.toml"):  # the manifest, and what it includes
        text = path.read_text(encoding="utf-8")
        for arch in () if named else more:
            text = re.sub(rf'(unsupported = {{[^}}]*?){ALIKE}( = "[^"]*")', rf"\1{arch}\2, {ALIKE}\2", text)
        path.write_text(text, encoding="utf-8")


def static_gate(folder: Path, source: Path, archs: Sequence[str]) -> tuple[str, list[dict[str, Any]]]:
    """The gate on a suite: warm, then with one kernel changed, of one variant and of as many as share one."""
    suite = folder / "suite"
    shutil.copytree(source, suite, ignore=shutil.ignore_patterns("__pycache__"))
    with_archs(suite / "suite.toml", archs)
    command = ["gate", "--suite", "suite", "--profiles", "none", *(w for f in FORMATS for w in ("--format", f))]
    first = timed(command, folder)
    loaded = suite_module.load(suite)
    sources = [v for v in loaded.variants.values() if isinstance(v.kind, Cuda)]
    builds = sum(len(v.where.archs) for v in sources)
    title = (
        f"{len(sources)} variants for {', '.join(loaded.archs)}, {builds} builds; "
        f"first {first.seconds:.0f} s, exit {first.code}"
    )
    rows = [row("nothing changed", [timed(command, folder) for _ in range(REPEATS)], 2)]
    shared = {v.kind.file: sum(w.kind == v.kind for w in sources) for v in sources}
    least, most = min(shared, key=lambda f: (shared[f], f)), max(shared, key=lambda f: (shared[f], f))
    rows.append(row(f"one kernel changed ({least})", changed(suite / least, command, folder, 3), 10))
    rows.append(row(f"… that {shared[most]} variants share ({most})", changed(suite / most, command, folder, 1), None))
    return title, rows


def changed(file: Path, command: Sequence[str], folder: Path, times: int) -> list[Timed]:
    """The gate after a new first line in ``file``: the machine code stays, but all of it is made anew."""
    text = file.read_text(encoding="utf-8")
    runs = []
    for index in range(times):
        file.write_text(f"// {index}\n{text}", encoding="utf-8")
        runs.append(timed(command, folder))
    return runs


def large_records(folder: Path, cases: int) -> list[dict[str, Any]]:
    """The gate on synthetic records."""
    rows = []
    for what, limits in (("all pass", (128, 10, 200)), ("half of the limits missed", (16, 99, 20))):
        run = folder / what.replace(" ", "_")
        # In a separate process: a child's peak memory is at least its parent's memory at the start.
        writer = multiprocessing.get_context("spawn").Process(target=write_record, args=(run, cases, *limits))
        writer.start()
        writer.join()
        if writer.exitcode != 0:
            raise SystemExit(f"{run}: the synthetic record could not be written")
        command = ["gate", str(run), "--require", "counters", *(w for f in FORMATS for w in ("--format", f))]
        runs = [timed(command, folder) for _ in range(3)]
        rows.append(row(f"{cases:,} cases, {what} (exit {runs[0].code})", runs, 5))
    return rows


def write_record(run: Path, cases: int, registers: float, occupancy: float, conflicts: float) -> None:
    """A record with some 20 facts a case, and limits on four of them."""
    from tests import factory

    budgets = [
        factory.budget("registers", maximum=registers),
        factory.budget("theoretical_occupancy", minimum=occupancy),
        factory.budget("bank_conflicts", maximum=conflicts),
        factory.budget("max_error", maximum=0.06),
        factory.goal("tensor_active", minimum=60),
    ]
    run.mkdir(parents=True)
    store.write(factory.large_record(cases, budgets), run)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if a target was missed."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda f: 0 if all(map(met, f["rows"])) else 1)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--cases", type=int, default=10_000, metavar="N")
    parser.add_argument("--archs", nargs="+", default=(), metavar="SM", help="build for these (default: four)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times all of it."""
    machine = raw.machine()
    with tempfile.TemporaryDirectory(prefix="flashcore-bench-") as name:
        rows = large_records(Path(name), options.cases)
        title, more = static_gate(Path(name), Path(options.suite), options.archs)
    return {"machine": machine, "suite": title, "rows": [*rows, *more]}


def table(results: Mapping[str, Any]) -> list[str]:
    """The results as lines of text."""
    return [results["machine"], results["suite"], *map(shown, results["rows"])]


if __name__ == "__main__":
    sys.exit(main())
