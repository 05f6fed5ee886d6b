"""``flashcore diff``: the differences between two records."""

from __future__ import annotations

import argparse
import math
import typing
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from flashcore.cli import options, output, progress, terminal
from flashcore.cli.grid import grid
from flashcore.errors import Exit
from flashcore.explain import diff
from flashcore.measure.settings import Settings
from flashcore.model.record import Record, Subject
from flashcore.model.text import number
from flashcore.pipeline.recording import present
from flashcore.plugins.compare import differences, kernels
from flashcore.records import lookup, narrow, store
from flashcore.suites import load
from flashcore.suites.load import NothingMatches

WORKING_TREE = "."
TOP = 20
_ORDER = typing.get_args(diff.Direction)

EXAMPLES = (
    ("flashcore diff 20260102T03 20260103", "two recorded runs"),
    ("flashcore diff HEAD~1", "the present sources and those of a git revision"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run's id or folder, a git revision, or . for the working tree")
    parser.add_argument("b", metavar="B", nargs="?", default=".", help="likewise (default: %(default)s)")
    options.add_cases(parser)
    options.add_records(parser)
    output.add_format(parser)
    text = "most differences to print of each kind, the largest first; 0: all (default: %(default)s)"
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> int:
    return compare(arguments, record)


def record(name: str, settings: Settings, say: Callable[[str], None]) -> Record:
    """The record that ``name`` means: a run, or the working tree (``.``).

    Raises:
        UsageError: it is neither.
        CapabilityError: there is no nvcc to build with.
    """
    if name == WORKING_TREE:
        return replace(present(settings, say), id="working tree")
    return store.read(lookup.find(settings.places, name))


def compare(arguments: argparse.Namespace, record: Callable[[str, Settings, Callable[[str], None]], Record]) -> int:
    """Prints the differences between two records; ``record`` finds or makes the one that a name means."""
    names = (arguments.a, arguments.b)
    runs = [run.name for run in lookup.all_runs(options.places(arguments))]
    need_none = all(
        Path(name, store.HEADER).is_file() or name.endswith(lookup.PACKED) or any(r.startswith(name) for r in runs)
        for name in names
    )
    settings = options.settings(arguments, upto=None, **({"suite": ""} if need_none else {}))
    with progress.shown(arguments.quiet) as say:
        a, b = _sides(names, settings, lambda name, settings: record(name, settings, say))
    both = replace(
        b.suite,
        variants={**a.suite.variants, **b.suite.variants},
        shapes={**a.suite.shapes, **b.suite.shapes},
        archs=tuple(dict.fromkeys((*a.suite.archs, *b.suite.archs))),
    )
    if any(chosen := options.selected(arguments).values()):  # a run has all variants
        both = load.narrowed(both, *chosen)
        a, b = narrow.narrowed(a, both), narrow.narrowed(b, both)
    json = arguments.format == "json"
    print(as_json(a, b) if json else terminal.painted(as_text(a, b, arguments.top, whole=bool(arguments.variants))))
    return Exit.OK


def _sides(names: Sequence[str], settings: Settings, record: Callable[[str, Settings], Record]) -> list[Record]:
    """The records of both names; a side without the selected variants is built as a whole."""
    sides: dict[str, Record | NothingMatches] = {}
    for name in sorted(names, key=lambda name: name != WORKING_TREE):  # a revision uses its builds
        try:
            sides[name] = record(name, settings)
        except NothingMatches as error:
            sides[name] = error
    errors = [side for side in sides.values() if isinstance(side, NothingMatches)]
    if len(errors) == len(sides):
        raise errors[-1]
    whole = replace(settings, variants=())
    return [record(n, whole) if isinstance(one := sides[n], NothingMatches) else one for n in names]


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
        moved = differences.moved(a, b, t.subject) if ranks and not t.same_code else ()
        lines = [f"{t.subject}  {t.mode}  {medians}  {t.text}{code}", *(f"  with it: {_change(c)}" for c in moved)]
        entries.append((t.same_code, not ranks, _ORDER.index(t.direction), -abs(math.log(t.ratio)), lines))
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
    timed = ("mode", "before_us", "after_us", "ratio", "low", "high", "judged", "same_code")
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
        times=None if reason else [subject(t.subject) | output.picked(t, *timed) for t in between.times],
        times_reason=reason,
    )
