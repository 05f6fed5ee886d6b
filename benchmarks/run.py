"""The whole run, from a clean build to the report: its seconds, the share of each stage, and whether it lost anything.

    python -m benchmarks.run [--suite DIR] [--times N] [--full | --against RUN] [--keep DIR]
    python -m benchmarks.run --compare RUN --against RUN

Every run builds into an empty folder. All record into one folder, so only the first measures the roofs, as on any
machine that has run before. A run that measures every case fully (``--first 0``) is what they are compared with: the
first five of every row, the verdicts, the first limiter of every case, and the steps of the ladder. Times of two runs
differ by noise: a place among the first five is the same *within noise* if the times of the two variants that have it
cannot be told apart in one of the runs.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import raw
from benchmarks.gate import timed
from flashcore.errors import UsageError
from flashcore.explain import ladder
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.gate import judge
from flashcore.model.case import Case
from flashcore.model.causes import FirstRound
from flashcore.model.record import Record
from flashcore.records import lookup, store

#: Seconds of a run on one GPU with 16 cores, and on two.
TARGETS = {1: 180.0, 2: 100.0}
_FIRST, _MOST = 5, 30
_PASSES = re.compile(r"- (\d+) passes")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if a run took longer than its target, or differs from the full one."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda f: int(not _good(f)))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--gpus", default="all", metavar="all|N|UUID,...", help="(default: %(default)s)")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="runs (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="one more run, which measures every case fully")
    parser.add_argument("--against", metavar="RUN", help="compare with this recorded run instead")
    parser.add_argument("--compare", action="append", default=[], metavar="RUN", help="this run; none is measured")
    parser.add_argument("--keep", metavar="DIR", help="keep the recorded runs here")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs and compares.

    Raises:
        UsageError: no such run, or nothing to do.
    """
    if options.compare and not options.against:
        raise UsageError("--compare: expected --against RUN too, found none")
    with tempfile.TemporaryDirectory(prefix="bench-run-") as name:
        profiles = Path(options.keep or name).absolute()
        profiles.mkdir(parents=True, exist_ok=True)
        (profiles / ".gitignore").write_text("*\n")  # the clean tree stays clean
        rows = [] if options.compare else [_run(options, profiles, Path(name)) for _ in range(options.times)]
        full = _run(options, profiles, Path(name), "--first", "0", "--no-roofs") if options.full else None
        runs = [row["run"] for row in rows] or options.compare
        other = full["run"] if full else options.against
        reference = _read(profiles, other) if other else None
        compared = [compare(_read(profiles, run), reference) for run in runs] if reference else []
    machine = raw.machine()
    return {"machine": machine, "suite": options.suite, "runs": rows, "full": full, "compared": compared}


def _read(profiles: Path, run: str) -> Record:
    return store.read(lookup.find((profiles, raw.ROOT / "profiles"), run))


def _run(options: argparse.Namespace, profiles: Path, scratch: Path, *more: str) -> dict[str, Any]:
    """One whole run: its seconds, those of each stage as its record has them, and what it took."""
    build = scratch / "build"
    shutil.rmtree(build, ignore_errors=True)
    suite, places = str(Path(options.suite).absolute()), ("--profiles", str(profiles), "--build-dir", str(build))
    before = {run.name for run in profiles.iterdir()}
    command = ("profile", "--suite", suite, *places, "--gpus", options.gpus, "-o", str(scratch / "report"), *more)
    started = time.time()
    took = timed(command, scratch)
    new = [store.read(path) for path in sorted(profiles.iterdir()) if path.is_dir() and path.name not in before]
    record = next(r for r in new if r.suite.name != "roofs")
    roofs = sum(note.seconds for r in new if r is not record for note in r.stages)
    logs = (profiles / record.id / "profile").rglob("child-*.log*")
    passes = [int(n) for log in logs for n in _PASSES.findall(_text(log))]
    made = {
        **asdict(took),
        "run": record.id,
        "gpus": max(1, len(record.gpus)) if record.gpu else 0,
        "gpu": record.gpu,
        "cases": {n.stage: _span(profiles / record.id / n.stage, started) for n in record.stages if n.stage != "build"},
        "stages": {note.stage: note.seconds for note in record.stages} | ({"roofs": roofs} if roofs else {}),
        "samples": sum(map(len, record.samples.values())),
        "first_round": sum(isinstance(f.detail, FirstRound) for f in record.facts),
        "passes": sum(passes),
        "launches": len(passes),
    }
    print("\n".join(_shares([made])), file=sys.stderr, flush=True)
    return made


def _span(folder: Path, started: float) -> list[float]:
    """Seconds from the start to the first case of a stage, and to the end of its last."""
    first, last = [], []
    for journal in folder.rglob("journal-*"):
        for line in map(json.loads, _text(journal).splitlines()):
            first += [line["at"]] if line["event"] == "begin" else []
            last += [first[-1] + line["seconds"]] if "seconds" in line and first else []
    return [round(min(first) - started, 1), round(max(last) - started, 1)] if last else []


def _text(log: Path) -> str:
    import gzip

    return (gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()).decode(errors="replace")


# --- what two runs say ---------------------------------------------------------------------------------


def compare(run: Record, full: Record) -> dict[str, Any]:
    """The differences between two runs of one suite."""
    ours, theirs = Readings(run), Readings(full)
    shapes = [s for s in run.suite.shapes.values() if "bench" in s.stages and s.name in full.suite.shapes]
    rows = [(Row(ours, row), Row(theirs, row)) for row in run.suite.rows(shapes)]
    verdicts = [_verdicts(record) for record in (run, full)]
    cases = [
        (v.name, s.name) for s in shapes for v in run.suite.variants.values() if "profile" in s.stages and v.runs_on(s)
    ]
    kinds = [{f"{v}/{s}": _limiter(readings, v, s) for v, s in cases} for readings in (ours, theirs)]
    steps = [
        {f"{row.name}/{s.variant.name}": s.outcome for row in pair for s in _steps(row)}
        for pair in zip(*rows, strict=True)
    ]
    return {
        "run": run.id,
        "full": full.id,
        "ranks": [_ranks(one, other) for one, other in rows],
        "counts": [dict(Counter(status for status, _ in v.values())) for v in verdicts],
        "verdicts": {k: [v.get(k) for v in verdicts] for k in verdicts[0] | verdicts[1] if _differs(k, verdicts)},
        "limiters": {case: [k[case] for k in kinds] for case in kinds[0] if kinds[0][case] != kinds[1][case]},
        "of_limiters": sum(bool(kind) for kind in kinds[1].values()),
        "steps": {name: [s.get(name) for s in steps] for name in steps[0] if steps[0][name] != steps[1].get(name)},
        "of_steps": len(steps[0]),
    }


def _differs(key: str, verdicts: Sequence[Mapping[str, tuple[str, Any]]]) -> bool:
    one, other = (v.get(key, ("absent", None))[0] for v in verdicts)
    return one != other


def _verdicts(record: Record) -> dict[str, tuple[str, Any]]:
    """Budget and subject → status and value; of one day, since waivers expire."""
    judged = judge.judge(record, today=date(2026, 1, 1)).verdicts
    return {f"{v.budget} {v.subject}": (v.status, getattr(v, "value", None)) for v in judged}


def _limiter(readings: Readings, variant: str, shape: str) -> str:
    part = time_parts(readings, Case(variant, shape)).limiter
    return part.kind if part else ""


def _steps(row: Row) -> Sequence[ladder.Step]:
    return ladder.ladder(row).steps


def _ranks(one: Row, other: Row) -> dict[str, Any]:
    """The first variants of a row in both runs, and the places that differ by more than noise."""
    first = [
        [n for n in row.times if not row.readings.record.suite.variants[n].is_reference][:_FIRST]
        for row in (one, other)
    ]
    pairs = [(a, b) for a, b in zip(*first, strict=False) if a != b]
    distinct = [pair for pair in pairs if all(_told_apart(row, *pair) for row in (one, other))]
    references = [one.reference, other.reference]
    return {"row": one.name, "first": first, "differ": pairs, "apart": distinct, "reference": references}


def _told_apart(row: Row, one: str, other: str) -> bool:
    speedup = row.over(one, other)
    return speedup is None or not speedup.unchanged


# --- for reading ---------------------------------------------------------------------------------------


def _good(results: Mapping[str, Any]) -> bool:
    target = TARGETS.get(results["runs"][0]["gpus"]) if results["runs"] else None
    in_time = not target or median(r["seconds"] for r in results["runs"]) <= target
    return in_time and all(_same(c) for c in results["compared"])


def _same(compared: Mapping[str, Any]) -> bool:
    one, other = compared["counts"]
    return one == other and not compared["limiters"] and not any(r["apart"] for r in compared["ranks"])


def _shares(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    seconds = [r["seconds"] for r in runs]
    gpus, target = runs[0]["gpus"], TARGETS.get(runs[0]["gpus"])
    verdict = "" if target is None else f"  target {target:g} s: {'met' if median(seconds) <= target else 'MISSED'}"
    head = f"{len(runs)} runs on {gpus} × {runs[0]['gpu']}: {median(seconds):.1f} s"
    counts = {k: median(r[k] for r in runs) for k in ("samples", "first_round", "passes", "launches")}
    stages = {stage: [r["stages"].get(stage, 0.0) for r in runs] for r in runs for stage in r["stages"]}
    # Archs of GPUs that are not on this machine are compiled during the check.
    stages["the rest"] = [r["seconds"] - sum(s for name, s in r["stages"].items() if name != "build") for r in runs]
    return [
        f"{head} [{min(seconds):.1f}, {max(seconds):.1f}]{verdict}",
        *(
            f"  {stage:10} {median(s):7.1f} s {100 * median(s) / median(seconds):4.0f} %"
            + "".join(f"  cases {one['cases'][stage]} s" for one in runs[:1] if one.get("cases", {}).get(stage))
            for stage, s in stages.items()
        ),
        f"  {counts['samples']:,.0f} timing samples, {counts['first_round']:,.0f} modes of cases that stopped early; "
        f"{counts['passes']:,.0f} ncu passes of {counts['launches']:,.0f} launches",
    ]


def table(results: Mapping[str, Any]) -> list[str]:
    """The results as lines of text."""
    lines = [results["machine"], "most of the build runs beside the check; the rest: its start, the report, the gate"]
    lines += _shares(results["runs"]) if results["runs"] else []
    lines += ["every case fully:", *_shares([results["full"]])] if results["full"] else []
    for c in results["compared"]:
        ranks, order = c["ranks"], [r for r in c["ranks"] if not r["differ"]]
        noise = [r for r in ranks if r["differ"] and not r["apart"]]
        lines += [
            "",
            f"run {c['run']} against {c['full']}: {'the same' if _same(c) else 'DIFFERS'}",
            f"  first {_FIRST}: {len(order)} of {len(ranks)} rows in one order, {len(noise)} within noise",
            *(f"    {r['row']}: {', '.join(f'{a} for {b}' for a, b in r['apart'])}" for r in ranks if r["apart"]),
            f"  fastest reference: another in {sum(len({*r['reference']}) > 1 for r in ranks)} rows",
            f"  gate: {c['counts'][0]}, fully {c['counts'][1]}; {len(c['verdicts'])} verdicts differ",
            *(f"    {name}: {one} instead of {other}" for name, (one, other) in [*c["verdicts"].items()][:_MOST]),
            f"  first limiter: another in {len(c['limiters'])} of {c['of_limiters']} cases",
            *(
                f"    {case}: {one or 'none'} instead of {other or 'none'}"
                for case, (one, other) in c["limiters"].items()
            ),
            f"  ladder: another outcome in {len(c['steps'])} of {c['of_steps']} steps",
            *(f"    {name}: {one} instead of {other}" for name, (one, other) in c["steps"].items()),
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
