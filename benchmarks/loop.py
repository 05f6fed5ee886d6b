"""The inner loop: one kernel edited, ``flashcore profile`` for it; and all variants from a clean build to the report.

    python -m benchmarks.loop [--suite DIR] [--variant NAME] [--shape NAME] [--times N] [--clean]

The suite is copied to a temporary folder and built there once. Before each command that is timed, the kernel's source
gets another constant, so that its machine code is another one and nothing can be taken over. Each stage's share is
what the run recorded; the rest is Python's start, the manifest, the report and the gate. Without a GPU nothing is
checked, timed or profiled: the targets, which are of a machine with one, are not judged then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import raw
from benchmarks.gate import Timed, timed
from flashcore.errors import UsageError
from flashcore.model.suite import Cuda
from flashcore.records import lookup, store
from flashcore.suites import load

#: Seconds, each of a whole command on one H200.
ALL_SHAPES, ONE_SHAPE, CLEAN = 15.0, 10.0, 90.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if a target was missed."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, lambda f: int(not all(map(_met, f["rows"]))))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--variant", default="tma_split_keys", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--shape", default="mission", metavar="NAME", help="default: %(default)s")
    parser.add_argument(
        "--times", type=int, default=3, metavar="N", help="commands of each sort (default: %(default)s)"
    )
    parser.add_argument("--clean", action="store_true", help="all variants too, from a clean build, once")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times all of it.

    Raises:
        UsageError: no such variant or shape, or the variant is a callable.
    """
    suite = load.load(Path(options.suite))
    variant = suite.variants.get(options.variant)
    if variant is None or not isinstance(variant.kind, Cuda) or options.shape not in suite.shapes:
        raise UsageError(
            f"--variant {options.variant} --shape {options.shape}: expected those of a source in {suite.name}"
        )
    machine = raw.machine()
    with tempfile.TemporaryDirectory(prefix="flashcore-bench-") as name:
        folder = Path(name)
        shutil.copytree(options.suite, folder / "suite", ignore=shutil.ignore_patterns("__pycache__"))
        source = folder / "suite" / variant.kind.file
        command = ("profile", "--suite", "suite", "--no-roofs", "-o", "report")
        one = (*command, "--variant", variant.name)
        _edited(folder, source, 0, one)  # its companions are built once
        n = options.times
        rows = [
            _row("one kernel edited, all shapes", ALL_SHAPES, [_edited(folder, source, 1 + i, one) for i in range(n)]),
            _row(f"one kernel edited, {options.shape} alone", ONE_SHAPE,
                 [_edited(folder, source, 1 + n + i, (*one, "--shape", options.shape)) for i in range(n)]),
        ]  # fmt: skip
        if options.clean:
            shutil.rmtree(folder / "build")
            rows.append(_row("all variants, clean build to report", CLEAN, [_shares(folder, timed(command, folder))]))
    return {"machine": machine, "suite": suite.name, "variant": variant.name, "rows": rows}


def _edited(folder: Path, source: Path, number: int, command: Sequence[str]) -> dict[str, Any]:
    """The command after an edit that no earlier build has."""
    text, _, _ = source.read_text(encoding="utf-8").partition("\n__constant__ int flashcore_edit")
    source.write_text(f"{text}\n__constant__ int flashcore_edit = {number};\n", encoding="utf-8")
    return _shares(folder, timed(command, folder))


def _shares(folder: Path, run: Timed) -> dict[str, Any]:
    """The timed command, with the seconds of each stage from its run."""
    record = store.read(lookup.find(folder / "profiles", None))
    stages = {note.stage: note.seconds for note in record.stages if note.seconds}
    print(f"{run.seconds:.2f} s, {stages}", file=sys.stderr, flush=True)
    return {**asdict(run), "stages": stages, "gpu": record.environment.gpu}


def _row(what: str, target: float, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    made = {"what": what, "target": target, "runs": list(runs)}
    print("\n".join(_shown(made)), file=sys.stderr, flush=True)
    return made


def _met(row: Mapping[str, Any]) -> bool:
    """States whether the target, which needs a GPU, is met."""
    runs = row["runs"]
    return runs[0]["gpu"] is None or median(r["seconds"] for r in runs) <= row["target"]


def _shown(row: Mapping[str, Any]) -> list[str]:
    runs = row["runs"]
    seconds = [r["seconds"] for r in runs]
    judged = "no GPU: target not judged" if runs[0]["gpu"] is None else "met" if _met(row) else "MISSED"
    line = f"{row['what']:40} {median(seconds):7.2f} s [{min(seconds):.2f}, {max(seconds):.2f}]"
    lines = [f"{line}  cpu {median(r['cpu'] for r in runs):.2f} s  target {row['target']:g} s: {judged}"]
    parts = {stage: median(r["stages"].get(stage, 0.0) for r in runs) for stage in runs[0]["stages"]}
    parts["the rest"] = median(r["seconds"] - sum(r["stages"].values()) for r in runs)
    return [
        *lines,
        *(f"  {stage:38} {part:7.2f} s {100 * part / median(seconds):4.0f} %" for stage, part in parts.items()),
    ]


def table(results: Mapping[str, Any]) -> list[str]:
    """The results as lines of text."""
    gpu = results["rows"][0]["runs"][0]["gpu"] or "no GPU"
    return [
        f"{results['variant']} of {results['suite']}, {gpu}, {results['machine']}",
        *(x for r in results["rows"] for x in _shown(r)),
    ]


if __name__ == "__main__":
    sys.exit(main())
