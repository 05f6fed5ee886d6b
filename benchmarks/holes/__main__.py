"""Can a green gate be had wrongly? Mutants by machine, for each way in which one once was.

    python -m benchmarks.holes [--sample N] [--only CLASS ...] [--minutes M] [--after FILE] [--json FILE]

Each class has a generator, which draws a mutant of the sources, limits, records, caches, texts, output files or command
line of a small repository, and asks ``flashcore gate`` about it in a process of its own. Every tenth draw of a class is
harmless: the gate must pass it. A mutant is *noticed* if the exit code is not 0 or the output says so, *equivalent* if
what the gate reads is the same or stricter, *left* if a reason says why it cannot be noticed; all others are *wrong*.
A class's mutants depend on the seed only; ``--after`` continues what ``--minutes`` ended.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.holes import commands, data, sources
from benchmarks.holes.place import Place

#: Each class with its share of the whole.
CLASSES: Mapping[str, tuple[Callable[[Place, random.Random, bool], sources.Row], int]] = {
    "shared symbols": (sources.shared_symbols, 24),
    "plan of an arch": (sources.plan_of_an_arch, 22),
    "base revision": (data.loosened_limits, 40),
    "records": (data.edited_records, 40),
    "build folder": (data.edited_caches, 34),
    "hidden inputs": (sources.hidden_inputs, 14),
    "freshness": (data.changed_inputs, 26),
    "texts": (data.drawn_texts, 28),
    "devices": (data.written_targets, 24),
    "spills": (sources.spilling_kernels, 12),
    "plans": (sources.unlaunchable, 24),
    "selections": (commands.selections, 34),
    "imports": (commands.imported_pages, 20),
    "Triton": (commands.traced_kernels, 10),
}
WHOLE = sum(share for _, share in CLASSES.values())
CONTROLS = 10  # one of so many draws is harmless


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if a mutant passes wrongly or a control does not pass."""
    name = str(Path(__file__).parent)
    return raw.main(name, __doc__, arguments, measure, table, argv, lambda measured: int(bool(wrong(measured))))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", type=int, default=WHOLE, metavar="N", help=f"how many (default: {WHOLE})")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="stop then, with what was tried")
    parser.add_argument("--after", metavar="FILE", help="keep what an earlier piece tried")
    parser.add_argument("--only", nargs="+", default=[*CLASSES], choices=[*CLASSES], metavar="CLASS")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Draws the mutants and tries each."""
    earlier = raw.read(Path(options.after), "holes")["mutants"] if options.after else []
    rows: list[dict[str, Any]] = [*earlier]
    tried = {(r["class"], r["number"]) for r in rows}
    machine = raw.machine()
    last = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="flashcore-holes-") as folder:
        place = Place(Path(folder))
        for name in options.only:
            make, share = CLASSES[name]
            for i in range(round(options.sample * share / WHOLE)):
                if (name, i) in tried or time.monotonic() > last:
                    continue
                began = time.monotonic()
                chance = random.Random(f"{options.seed} {name} {i}")
                harmless = i % CONTROLS == 0
                try:
                    what, outcome, words = make(place.fresh(), chance, harmless)
                except Exception:
                    what, outcome, words = f"seed {i}", "wrong", traceback.format_exc(limit=-2)[-400:]
                seconds = round(time.monotonic() - began, 1)
                row = {"class": name, "number": i, "control": harmless, "what": what[:160], "outcome": outcome}
                row |= {"words": words.strip()[:160], "seconds": seconds}
                rows.append(
                    {
                        k: v.replace(f"{place.folder}/", "").replace(folder, "") if isinstance(v, str) else v
                        for k, v in row.items()
                    }
                )
                print(
                    f"{len(rows)} {name} {i}{' control' * harmless}: {outcome}: {what}: {words}",
                    file=sys.stderr,
                    flush=True,
                )
    return {"machine": machine, "mutants": rows}


def wrong(measured: raw.Results) -> list[Mapping[str, Any]]:
    """Mutants that passed wrongly, and controls that did not pass."""
    return [r for r in measured["mutants"] if r["outcome"] == "wrong"]


def table(measured: raw.Results) -> list[str]:
    """The figures, for reading: each class, then what is left or wrong."""
    return list(_table(measured))


def _table(measured: raw.Results) -> Iterator[str]:
    rows = measured["mutants"]
    yield measured["machine"]
    yield f"{'class':16} mutants  noticed  equivalent  left  wrong  controls"
    for name in CLASSES:
        tried = [r for r in rows if r["class"] == name and not r["control"]]
        controls = [r for r in rows if r["class"] == name and r["control"]]
        count = Counter(r["outcome"] for r in tried)
        if tried or controls:
            fine = sum(r["outcome"] == "equivalent" for r in controls)
            yield (
                f"{name:16} {len(tried):7} {count['noticed']:8} {count['equivalent']:11} {count['left']:5} "
                f"{count['wrong']:6}  {fine} of {len(controls)}"
            )
    seconds = sum(r["seconds"] for r in rows)
    yield f"{sum(not r['control'] for r in rows)} mutants, {len(wrong(measured))} wrong; {seconds:.0f} s"
    for r in rows:
        if r["outcome"] in ("left", "wrong"):
            yield f"{r['outcome']}: {r['class']}: {r['what']}: {r['words']}"


if __name__ == "__main__":
    sys.exit(main())
