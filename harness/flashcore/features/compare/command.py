"""``flashcore compare``: the differences between two records."""

from __future__ import annotations

import argparse
import math
import sys
import typing
from collections import Counter
from collections.abc import Sequence

from flashcore.cli import options, output, progress, terminal
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.explain import diff
from flashcore.features.compare import differences, kernels, sides
from flashcore.model.record import Record, Subject
from flashcore.model.text import number
from flashcore.pipeline import pages
from flashcore.pipeline.judging import Rules, judge_record

TOP = 20
_ORDER = typing.get_args(diff.Direction)

EXAMPLES = (
    ("flashcore compare 20260102T03 20260103", "two recorded runs"),
    ("flashcore compare HEAD~1", "a git revision and the present sources"),
    ("flashcore compare old.whl new.whl", "the kernels in two versions of a wheel"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = f"a run's id or folder, a packed run, a git revision, compiled files, a report, or {sides.TREE} for the "
    parser.add_argument("a", metavar="A", help=f"{text}working tree")
    parser.add_argument("b", metavar="B", nargs="?", default=sides.TREE, help="likewise (default: %(default)s)")
    options.add_cases(parser)
    options.add_records(parser)
    options.add_quiet(parser)
    output.add_format(parser)
    text = "most differences to print of each kind, the largest first; 0: all (default: %(default)s)"
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=text)
    parser.add_argument("-o", "--output", metavar="DIR", help="also write a report of B, whose page Compare has both")
    parser.add_argument("--single-file", action="store_true", help="with -o: one HTML file instead of a folder")


def run(arguments: argparse.Namespace) -> int:
    with progress.shown(arguments.quiet) as say:
        a, b = sides.records(arguments, say)
    json = arguments.format == "json"
    print(as_json(a, b) if json else terminal.painted(as_text(a, b, arguments.top, whole=bool(arguments.variants))))
    if arguments.output:
        target = pages.Target(arguments.output, arguments.single_file)
        written = pages.write(target, judge_record(Rules(compare=False), b), against=a)
        page = next((file for file in written if file.stem == "compare"), written[0])
        print(page, file=sys.stderr if json else None)
    return Exit.OK


def as_text(a: Record, b: Record, top: int = TOP, *, whole: bool = False) -> str:
    """The differences between two records: how many, then the first ``top`` of each kind (0: all).

    Args:
        whole: whether facts that one record lacks are listed, and not only counted.
    """
    head, (same, both) = f"{a.id} → {b.id}", differences.same_builds(a, b)
    if a.suite.name != b.suite.name:
        head += f": of different suites, {a.suite.name} and {b.suite.name}"
    if diff.is_of_files(a) and diff.is_of_files(b):
        return f"{head}: {kernels.text(a, b, top or None)}"
    notes = [f"note: {r}" for r in differences.remarks(a, b)]
    before, after = ({f"{x.variant} for {x.arch}" for x in r.artifacts if x.status == "failed"} for r in (a, b))
    notes += [f"note: {x} does not build {'after' if x in after else 'before'}" for x in sorted(before ^ after)]
    between = differences.Differences.between(a, b)
    kinds = {
        "static facts": _static(between.static, whole),
        "times (other runs: shown, not judged)": _times(a, b, between.times),
        "imported (other runs: shown, not judged)": [
            [str(subject), *(f"  {_change(c)}" for c in moved)] for subject, moved in between.imported if moved
        ],
    }
    total = sum(between.counts.values(), Counter())
    if same == both and not any(kinds.values()) and total.keys() <= {"no difference"}:
        compared = f"no difference in {total.total():,} facts and times" if total else "nothing to compare"
        return "\n".join([f"{head}: {compared}", *notes])
    rows = [(kind, *(f"{count[way]:,}" for way in _ORDER)) for kind, count in between.counts.items() if count]
    lines = [head, *notes, "", grid(("", *_ORDER), rows)]
    if both:
        lines.append(f"machine code: the same in {same:,} of {both:,} builds")
    for kind, entries in kinds.items():
        lines += ["", kind] if entries else []
        lines += [f"  {line}" for entry in entries[: top or None] for line in entry]
        if top and entries[top:]:
            lines.append(f"  … {len(entries) - top:,} more (--top 0 prints all)")
    return "\n".join(lines)


def _static(changes: Sequence[diff.Change], whole: bool) -> list[list[str]]:
    """Changes, worse ones first, then the largest; facts that one record lacks as one line unless ``whole``."""
    changes = sorted(changes, key=lambda c: (_ORDER.index(c.direction), -c.share))
    lacking = {} if whole else {"appeared": "before", "vanished": "after"}
    lines = []
    for way, when in lacking.items():
        variants = Counter(c.subject.variant for c in changes if c.direction == way)
        names = ", ".join(f"{name} ({count})" for name, count in variants.most_common(5))
        more = f" and {len(variants) - 5} variants" if len(variants) > 5 else ""
        if variants:
            lines.append(
                f"{way}, unmeasured {when}: {variants.total():,} facts of {names}{more} (--variant lists them)"
            )
    return [[line] for line in (*lines, *(f"{c.subject}  {_change(c)}" for c in changes if c.direction not in lacking))]


def _times(a: Record, b: Record, times: Sequence[diff.TimeChange]) -> list[list[str]]:
    """Times that differ: those of other code first, of these in the mode that ranks, slower ones, the largest."""
    entries = []
    for t in times:
        if t.direction == "no difference":
            continue
        ranks = t.mode == b.suite.shapes[t.subject.shape or ""].rank_by
        code = "; the same code" if t.same_code else ""
        medians = f"{number(round(t.before_us, 3))} → {number(round(t.after_us, 3), 'us')}"
        moved = diff.moved(a, b, t.subject) if ranks and not t.same_code else ()
        lines = [
            f"{t.subject}  {t.mode}  {medians}  {t.speedup.text}{code}",
            *(f"  with it: {_change(c)}" for c in moved),
        ]
        entries.append((t.same_code, not ranks, _ORDER.index(t.direction), -abs(math.log(t.speedup.value)), lines))
    return [lines for *_, lines in sorted(entries)]


def _change(change: diff.Change) -> str:
    return f"{change.fact}  {change.text}  {change.direction}"


def as_json(a: Record, b: Record) -> str:
    """Returns the differences as JSON. Its keys:

    - ``before``, ``after``: id, suite, gpu, nvcc; ``notes``;
    - ``counts``: the numbers of static facts, times and imported cases by direction;
    - ``builds``: the number of builds in both, and of those that are the same;
    - ``static``: changed facts, ``null`` on the side that lacks one;
    - ``imported``: the changed facts of each imported case;
    - ``times``: in us, ``null`` if they do not compare, for ``times_reason``.
    """

    def subject(of: Subject) -> dict[str, typing.Any]:
        return output.picked(of, "variant", "arch", "shape", "kernel", "launch")

    between, (same, both) = differences.Differences.between(a, b), differences.same_builds(a, b)
    reason = diff.comparable(a, b)
    changed = ("fact", "unit", "before", "after", "direction")
    timed = ("mode", "before_us", "after_us", "no_interval", "judged", "same_code")
    return output.document(
        **{
            side: {"id": x.id, "suite": x.suite.name, "gpu": x.gpu, "nvcc": x.environment.nvcc}
            for side, x in (("before", a), ("after", b))
        },
        notes=differences.remarks(a, b),
        counts=between.counts,
        builds={"same": same, "both": both},
        static=[subject(c.subject) | output.picked(c, *changed) for c in between.static],
        imported=[subject(s) | {"facts": [output.picked(c, *changed) for c in facts]} for s, facts in between.imported],
        times=None
        if reason
        else [
            subject(t.subject) | output.picked(t, *timed) | {"ratio": r.value, "low": r.low, "high": r.high}
            for t in between.times
            for r in [t.speedup]
        ],
        times_reason=reason,
    )
