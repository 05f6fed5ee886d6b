"""The judge's times beside bench's: ``python -m extensions.judge.benchmarks.judge_times``.

Honest candidates are compiled here, which needs a sandbox, from the variants that ``bench`` compiles, and timed on the
same shapes by ``bench`` and by the judge, in turns, on a GPU; Triton's kernel also by ``bench --launcher``. A time is
the median of the turns. The goal is a difference of 1 %; ``bench`` and the judge have tensors at other places in each
turn, and the range of each is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import raw
from extensions.judge.benchmarks.judge import ARCH
from flashcore.pipeline import plugins
from flashcore.records import lookup, store
from flashcore.suites.load import load
from flashcore_judge import candidate, judging, preparing

#: Suite → shapes, variants, and a pattern of these for ``bench``.
CANDIDATES = {
    "examples/row_softmax": (("main", "wide"), ("warp", "naive"), "*"),
    "kernels/attention": (("mission", "s256"), ("mma_split_keys", "mma_split_keys_n32"), "mma_split_keys*"),
    "examples/triton_kernels": (("rows",), ("softmax_4_warps", "softmax_8_warps"), "softmax_*_warps"),
}
MODES = ("isolated", "cold")


def build(folder: Path) -> None:
    """Writes the candidates: ``SUITE.VARIANT`` with cubins and launches, of the shapes that are timed."""
    for root, (names, variants, _) in CANDIDATES.items():
        suite = load(raw.ROOT / root)
        for name in variants:
            variant, shapes = suite.variants[name], [suite.shapes[shape] for shape in names]
            place = folder / f"{suite.name}.{name}"
            place.mkdir(parents=True)
            with tempfile.TemporaryDirectory() as temporary:
                made = preparing.compiled(suite, name, shapes, ARCH, Path(temporary))
                for file, content in made.cubins.items():
                    (place / file).write_bytes(content)
            launches = {shape: [each.model_dump() for each in every] for shape, every in made.shapes.items()}
            form = {"name": name, "problem": variant.problem, "tolerance": variant.tolerance, "roof": variant.roof}
            text = json.dumps({**form, "shapes": list(names), "launches": launches})
            (place / candidate.MANIFEST).write_text(text)


def judged(root: str, folder: Path) -> Iterator[tuple[str, float]]:
    """Each case with its mode, and us by the judge."""
    suite = load(raw.ROOT / root)
    places = [folder / f"{suite.name}.{name}" for name in CANDIDATES[root][1]]
    with contextlib.closing(judging.judge_all(suite, places, lambda _: None)) as verdicts:
        for place, verdict in verdicts:
            print(place.name, verdict.status, *verdict.reasons[:1], file=sys.stderr)
            for shape in asdict(verdict)["shapes"]:
                for mode, time in shape["times"].items():
                    yield f"{place.name.partition('.')[2]}/{shape['shape']}/{mode}", time["us"]


def benched(root: str, build_folder: str, *options: str) -> Iterator[tuple[str, float]]:
    """Each case with its mode, and us by ``bench``."""
    shapes, variants, pattern = CANDIDATES[root]
    with tempfile.TemporaryDirectory() as profiles:
        command = [sys.executable, "-m", "flashcore", "bench", "--suite", root, "--profiles", profiles, "-q"]
        command += ["--build-dir", build_folder, "--variant", pattern, "--first", "0", *options]
        command += [word for shape in shapes for word in ("--shape", shape)]
        subprocess.run(command, check=True, cwd=raw.ROOT, stdout=subprocess.DEVNULL)
        record = store.read(lookup.find(Path(profiles), None))
    for (case, mode), samples in record.samples.items():
        if case.variant in variants and mode in MODES:
            yield f"{case}/{mode}", statistics.median(samples)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Way → suite, case and mode → us of each turn."""
    plugins.load()
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as made:
        build(Path(made, "candidates"))
        for _ in range(options.turns):
            for root in CANDIDATES:
                ways = {"bench": benched(root, options.build_dir), "judge": judged(root, Path(made, "candidates"))}
                if "triton" in root:
                    ways["bench --launcher"] = benched(root, options.build_dir, "--launcher")
                for way, every in ways.items():
                    for key, us in every:
                        times[way][f"{Path(root).name} {key}"].append(us)
                if options.json:
                    raw.write(Path(options.json), Path(__file__).stem, options, times)
    return times


def table(results: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """A line for each time, then how many are within 1 and 2 %."""
    lines, shares = [], []
    for key, judge in results["judge"].items():
        if bench := results["bench"].get(key):
            us, share = statistics.median(judge), statistics.median(judge) / statistics.median(bench) - 1
            shares.append(abs(share))
            ranges = f"{min(judge):9.3f} to {max(judge):9.3f}, bench {min(bench):9.3f} to {max(bench):9.3f}"
            launcher = results.get("bench --launcher", {}).get(key, ())
            lines.append(f"{key:52}{us:10.3f} us {share:+7.2%}   {ranges}" + "".join(f" {x:.3f}" for x in launcher))
    within = [sum(share <= most for share in shares) for most in (0.01, 0.02)]
    return [*lines, f"of {len(shares)} times {within[0]} are within 1 % of bench, {within[1]} within 2 %"]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of all (default: %(default)s)")
    parser.add_argument("--build-dir", default="build", metavar="DIR", help="bench's builds (default: %(default)s)")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv)


if __name__ == "__main__":
    sys.exit(main())
