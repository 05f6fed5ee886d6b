"""``flashcore diff``: what changed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashcore.cli import options, output, progress, terminal
from flashcore.errors import Exit, UsageError
from flashcore.explain import diff
from flashcore.measure.settings import Settings
from flashcore.model import plugin
from flashcore.model.record import Record, Subject
from flashcore.model.text import number
from flashcore.pipeline.present import present
from flashcore.plugins.compare import differences, kernels
from flashcore.records import lookup, store
from flashcore.suites.load import NothingMatches, select

Say = Callable[[str], None]
WORKING_TREE = "."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run's id or folder, a git revision, or . for the working tree")
    parser.add_argument("b", metavar="B", nargs="?", default=".", help="likewise (default: %(default)s)")
    options.add_cases(parser)
    options.add_records(parser)
    output.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    return compare(arguments, record)


def record(name: str, settings: Settings, say: Say) -> Record:
    """The record that ``name`` means: a run, or the working tree (``.``).

    Raises:
        UsageError: it is neither.
        CapabilityError: there is no nvcc to build with.
    """
    if name == WORKING_TREE:
        return replace(present(settings, say), id="working tree")
    try:
        return store.read(lookup.find(settings.places, name))
    except UsageError as error:
        raise UsageError(f"{error}{plugin.missing('options', 'git revisions')}") from None


def compare(arguments: argparse.Namespace, record: Callable[[str, Settings, Say], Record]) -> int:
    """Prints the differences between two records; ``record`` finds or makes the one that a name means."""
    names = (arguments.a, arguments.b)
    runs = [run.name for run in lookup.everywhere(options.places(arguments))]
    need_none = all(
        Path(name, store.HEADER).is_file() or name.endswith(lookup.PACKED) or any(r.startswith(name) for r in runs)
        for name in names
    )
    no_suite = {"suite": ""} if need_none else {}
    settings = options.settings(arguments, upto=None, **no_suite)
    with progress.shown(arguments.quiet) as say:
        a, b = _sides(names, settings, lambda name, settings: record(name, settings, say))
    chosen = arguments.variant
    if chosen is not None:  # a run has them all
        both = replace(b.suite, variants={**a.suite.variants, **b.suite.variants})
        matching = [v.name for v in select(both, chosen)[0]]
        a, b = differences.narrowed(a, matching), differences.narrowed(b, matching)
    json = arguments.format == "json"
    print(as_json(a, b) if json else terminal.painted(as_text(a, b, whole=chosen is not None)))
    return Exit.OK


def _sides(names: Sequence[str], settings: Settings, record: Callable[[str, Settings], Record]) -> list[Record]:
    """The records of both; a side that lacks the named variants is built as a whole, and then has none of them."""
    sides: list[Record | NothingMatches] = []
    for name in names:
        try:
            sides.append(record(name, settings))
        except NothingMatches as error:
            sides.append(error)
    errors = [one for one in sides if isinstance(one, NothingMatches)]
    if len(errors) == len(sides):
        raise errors[-1]
    whole = replace(settings, variant=None)
    return [record(n, whole) if isinstance(one, NothingMatches) else one for n, one in zip(names, sides, strict=True)]


def as_text(a: Record, b: Record, *, whole: bool = False) -> str:
    """The differences between two records; of a variant that one of them lacks the number of facts, or ``whole``."""
    if kernels.are_all(a) and kernels.are_all(b):
        return f"{a.id} → {b.id}\n\n{kernels.text(a, b)}"
    lines = [f"{a.id} → {b.id}", *(f"note: {r}" for r in differences.remarks(a, b))]
    same, both = differences.same_builds(a, b)
    for side, one in (("before", a), ("after", b)):
        lines += [
            f"note: {x.variant} for {x.arch} does not build {side}" for x in one.artifacts if x.status == "failed"
        ]
    if both:
        lines.append(f"machine code: the same in {same} of {both} builds")
    lone = {} if whole else differences.one_sided(a, b)
    changes = [c for c in diff.changes(a, b) if c.subject.variant not in lone]
    where = " in the variants that both have" if lone else ""
    lines += ["", f"static facts: {f'{len(changes)} changed' if changes else 'no change'}{where}"]
    for variant, (how, count) in lone.items():
        lines.append(f"  {variant}  {how} with {count} facts (--variant {variant} lists them)")
    lines += [f"  {c.subject}  {_change(c)}" for c in changes]
    if not diff.comparable(a, b):
        times = differences.timing(a, b)
        lines += ["", "times (other runs: shown, not judged)" if times else "times: none on both sides"]
        for t in times:
            code = "; the same code" if t.same_code else ""
            medians = f"{number(round(t.before_us, 3))} → {number(round(t.after_us, 3), 'us')}"
            lines.append(f"  {t.subject}  {t.mode}  {medians}  {t.text}{code}")
            if t.mode == b.suite.shapes[t.subject.shape or ""].rank_by and not t.same_code and not t.low <= 1 <= t.high:
                lines += [f"    with it: {_change(c)}" for c in differences.moved(a, b, t.subject)]
    if imported := differences.imported(a, b):
        lines += ["", "imported (other runs: shown, not judged)"]
        for subject, moved in imported:
            lines += [f"  {subject}" + ("" if moved else "  no difference"), *(f"    {_change(c)}" for c in moved)]
    return "\n".join(lines)


def _change(change: diff.Change) -> str:
    return f"{change.fact}  {change.text}  {change.direction}"


def as_json(a: Record, b: Record) -> str:
    """Its keys.

    - ``before``, ``after``: id, suite, gpu, nvcc; ``notes``;
    - ``builds``: how many of both are the same;
    - ``static``: a changed fact each, ``null`` on the side that lacks it;
    - ``imported``: the facts of each imported case that changed;
    - ``times``: in us, ``null`` where they do not compare; then ``times_reason`` says why.
    """

    def side(record: Record) -> dict[str, Any]:
        return {"id": record.id, "suite": record.suite.name, "gpu": record.gpu, "nvcc": record.environment.nvcc}

    def subject(of: Subject) -> dict[str, Any]:
        return output.picked(of, "variant", "arch", "shape", "kernel", "launch")

    same, both = differences.same_builds(a, b)
    reason = diff.comparable(a, b)
    changed = ("fact", "unit", "before", "after", "direction")
    timed = ("mode", "before_us", "after_us", "ratio", "low", "high", "judged", "same_code")
    return output.document(
        before=side(a),
        after=side(b),
        notes=differences.remarks(a, b),
        builds={"same": same, "both": both},
        static=[subject(c.subject) | output.picked(c, *changed) for c in diff.changes(a, b)],
        imported=[
            subject(s) | {"facts": [output.picked(c, *changed) for c in facts]}
            for s, facts in differences.imported(a, b)
        ],
        times=None if reason else [subject(t.subject) | output.picked(t, *timed) for t in differences.timing(a, b)],
        times_reason=reason,
    )
