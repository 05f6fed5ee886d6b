"""Data shared by the pages: a record with its judgement and look-ups, and a case's look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Generic, TypeVar

from flashcore.explain import heat, ladder, measured_roofs
from flashcore.explain.answer import Answer, Answers, Duration
from flashcore.explain.ladder import Ladder, Step
from flashcore.explain.limiter import TimeParts, time_parts
from flashcore.explain.readings import Readings, extreme, unmeasured
from flashcore.explain.rows import Row
from flashcore.explain.verdict import Status
from flashcore.gate.judge import Judgement
from flashcore.gate.wording import summary
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import cause_text
from flashcore.model.record import CaseOutcome, CaseSubject, Listing, Record
from flashcore.model.suite import Shape, Stage, Variant
from flashcore.model.text import UNMEASURED, whole
from flashcore.report.cells import Cell, fact_cell, missing, not_applicable

INDEX, ROOFLINE, BUDGETS = "index", "roofline", "budgets"
#: The scripts of a page with charts.
CHARTS = ("plotly-basic.min.js", "charts.js")
#: The script of a page with source lines, which are in ``sources.js``.
SOURCE = "source.js"

#: The most shapes and columns on a page, which also shows the number of omitted ones.
MAX_SHAPES = 40
MAX_COLUMNS = 24

STAGE_BY_GROUP: dict[str, Stage] = {"check": "check", "sanitizer": "sanitize", "timing": "bench"}

#: Role → label; most variants have none.
LABELS = {"reference": "reference", "baseline": "baseline"}
#: The statuses of limits; a badge shows the first that occurs.
LIMIT_ORDER: tuple[Status, ...] = ("fail", "waived", "unmeasured", "pass")

View = TypeVar("View", covariant=True)


def variant_page(name: str) -> str:
    """The name of a variant's page."""
    return f"variant/{name}"


def variant_cell(name: str, title: str = "", detail: str = "", shape: str = "") -> Cell:
    """A variant's name, linked to its page, at a shape."""
    return Cell(name, title=title, sort=name, href=variant_page(name) + f"?shape={shape}" * bool(shape), detail=detail)


@dataclass(frozen=True, slots=True)
class Page(Generic[View]):
    """One page; its name is also its file name and anchor. The header links those that are in no folder.

    Args:
        template: a file in ``templates/``, or a plugin's absolute path.
        view: the template's variables: a mapping, or an object named ``view`` in the template.
        scripts: scripts in addition to ``report.js``: files in ``static/``, or a plugin's absolute paths.
        tables: an overview's tables for Markdown, as rows, the heading first.
        below: the page at whose end it stands, as a part of it.
    """

    name: str
    title: str
    template: str
    view: View
    scripts: Sequence[str] = ()
    tables: Sequence[Sequence[Sequence[str]]] = ()
    below: str = ""

    @property
    def anchor(self) -> str:
        return self.name.replace("/", "-")


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that lacks a stage's result, or is stale."""

    variant: str
    shape: str
    stage: str
    status: str
    reason: str


class Book:
    """A record prepared for the pages. Presentation only: :mod:`flashcore.explain` and the gate draw conclusions."""

    def __init__(
        self,
        record: Record,
        judgement: Judgement,
        other: Record | None = None,
        places: Sequence[Path] = (),
    ) -> None:
        suite = record.suite
        self.record = record
        self.other = other  # a record to compare with
        self.places = places  # of other runs
        self.judgement = judgement
        self.artifacts = {(a.variant, a.arch): a for a in record.artifacts}
        self.budgets = {b.name: b for b in suite.budgets}
        self.readings = Readings(record)
        #: The arch whose static facts are displayed.
        self.arch = self.readings.arch
        self.bounds = self.readings.bounds
        every = list(suite.shapes.values())
        #: The shapes that are timed or profiled (all, if none is), in the manifest's order.
        self.shapes = [s for s in every if "bench" in s.stages or "profile" in s.stages] or every
        self.shown_shapes = self.shapes[:MAX_SHAPES]
        self.shapes_left_out = len(self.shapes) - len(self.shown_shapes)
        #: Whether all its kernels were imported.
        self.imported = bool(suite.variants) and suite.is_imported
        #: Identical shapes share a row.
        self.rows = [Row(self.readings, shapes) for shapes in suite.rows(self.shapes)]
        #: Shape → the names of its row.
        self.names = {shape.name: row.name for row in self.rows for shape in row.shapes}
        self.rates = measured_roofs.rates(record)
        self.answers = Answers(self.readings, judgement)
        self.listings = cache(self._listings)  # a case's, each with its lines in order
        self._ladders: dict[tuple[str, ...], Ladder] = {}

    @cached_property
    def sources(self) -> dict[str, int]:
        """The text of each recorded source file → its place in ``sources.js``: variants share most files."""
        files = (text for listing in self.record.listings for text in listing.files.values())
        return {text: i for i, text in enumerate(dict.fromkeys(files))}

    def role(self, variant: Variant) -> str:
        """``reference``, ``baseline`` or ``variant``."""
        return self.record.suite.role(variant)

    def ladder(self, *shapes: Shape) -> Ladder:
        """The ladder of a shape, or of identical shapes."""
        names = tuple(s.name for s in shapes)
        if names not in self._ladders:
            self._ladders[names] = ladder.ladder(Row(self.readings, shapes))
        return self._ladders[names]

    def cases(self, row: Row) -> list[ShownCase]:
        """The cases of a row."""
        shapes, variants = {s.name: s for s in row.shapes}, self.record.suite.variants
        return [ShownCase(self, variants[name], shapes[case.shape]) for name, case in row.cases.items()]

    def _listings(self, subject: CaseSubject) -> list[tuple[Listing, list[heat.Line]]]:
        return [(x, heat.in_order(x)) for x in self.record.listings if x.subject.case == subject.case]

    @cached_property
    def failures(self) -> list[Failure]:
        """Cases without a result, in the outcomes' order, stale ones last."""
        record = self.record
        failures = [
            Failure(o.variant, o.shape, o.stage, o.status, o.reason)
            for o in record.outcomes
            if o.status != "ok" and o.case not in record.stale
        ]
        stale = [
            Failure(case.variant, case.shape, "all measured stages", "stale", cause_text(cause))
            for case, cause in record.stale.items()
        ]
        return failures + stale

    # --- cells ----------------------------------------------------------------------------------

    def cell(self, name: str, subject: CaseSubject, *, with_unit: bool = True, brief: bool = False) -> Cell:
        """The cell of a case's fact, or the reason for its absence. Static facts are the variant's."""
        if name in FACTS and FACTS[name].group == "static":
            return self._static_cell(name, subject, with_unit)
        fact = self.record.facts.get(name, subject)
        if fact is None:
            return missing(self.why(name, subject), f"{name} of {subject}")
        return fact_cell(fact, with_unit=with_unit, brief=brief)

    def _static_cell(self, name: str, subject: CaseSubject, with_unit: bool) -> Cell:
        """The largest value among a variant's kernels (the smallest, if higher is better), with all on hover."""
        variant = self.record.suite.variants[subject.variant]
        if variant.is_reference:
            return not_applicable("a reference: its kernels are not built here")
        facts = self.readings.static(name, variant.name, subject.shape, self.arch)
        fact = extreme(name, facts)
        if fact is None:
            return missing(unmeasured(facts) or self._why_static(variant), name)
        cell = fact_cell(fact, with_unit=with_unit)
        if len(facts) == 1:
            return cell
        word = "smallest" if FACTS[name].better == "higher" else "largest"
        each = "\n".join(f"{f.subject.kernel}: {f.value}" for f in facts)
        return replace(cell, title=f"{cell.title}\n{word} of {len(facts)} kernels:\n{each}")

    def _why_static(self, variant: Variant) -> str:
        arch = self.arch
        if arch is None:
            return "the suite names no arch"
        if arch in variant.where.unsupported:
            return f"unsupported on {arch}: {variant.where.unsupported[arch]}"
        artifact = self.artifacts.get((variant.name, arch))
        if artifact is None:
            return f"not built for {arch}"
        if artifact.status == "ok":
            return "not recorded"
        first = artifact.message.strip().splitlines()[:1]
        status = {"failed": "does not build", "unsupported": "unsupported"}[artifact.status]
        return ": ".join([f"{status} on {arch}", *first])

    def why(self, name: str, subject: CaseSubject) -> str:
        """Why a measured fact is missing."""
        group = FACTS[name].group if name in FACTS else ""
        if group == "formula":
            return "the problem's formulas do not give it"
        return self.record.missing(subject.case, STAGE_BY_GROUP.get(group, "profile")).text

    def limits_badge(self, variant: Variant, href: str = "") -> Cell:
        """A variant's limits in a badge that links to ``href``: the worst status, with the counts on hover."""
        if variant.is_reference:
            return not_applicable("references have no budgets")
        budgets = self.answers.budgets(variant.name)
        counts = budgets.counts()
        present = [s for s in LIMIT_ORDER if counts[s]]
        if not present:
            return not_applicable("no limits apply")
        worst = present[0]
        failed = [
            f"{v.budget}: {v.subject}" + (f" ({v.reason.splitlines()[0]})" if v.reason else "") for v in budgets.failed
        ]
        title = "\n".join(["limits: " + ", ".join(f"{counts[s]} {s}" for s in present), *failed[:8]])
        text = worst if worst == "pass" else f"{counts[worst]} {worst}"
        return Cell(text, title=title, sort=float(LIMIT_ORDER.index(worst)), mark=worst, href=href)


@dataclass(frozen=True)
class ShownCase:
    """A variant on a shape, with its look-ups in the record."""

    book: Book
    variant: Variant
    shape: Shape

    @cached_property
    def subject(self) -> CaseSubject:
        return CaseSubject(Case(self.variant.name, self.shape.name))

    @property
    def role(self) -> str:
        return self.book.role(self.variant)

    @property
    def answer(self) -> Answer:
        """The answers to the four questions."""
        return self.book.answers.of(self.subject.case)

    @property
    def time(self) -> Duration:
        """Its time and what it is compared with."""
        return self.book.answers.time(self.subject.case)

    @property
    def parts(self) -> TimeParts:
        """What takes its time."""
        return time_parts(self.book.readings, self.subject.case)

    @cached_property
    def parent(self) -> ShownCase | None:
        """The parent on the same shape; ``None`` if the suite does not have it."""
        parent = self.book.record.suite.variants.get(self.variant.parent or "")
        return ShownCase(self.book, parent, self.shape) if parent else None

    @property
    def step(self) -> Step | None:
        """The case's step on the ladder."""
        return next((s for s in self.book.ladder(self.shape).steps if s.variant.name == self.variant.name), None)

    def number(self, fact: str) -> float | None:
        return self.book.record.facts.number(fact, self.subject)

    def cell(self, fact: str, *, brief: bool = True) -> Cell:
        """A fact's cell for a column whose heading has the unit."""
        return self.book.cell(fact, self.subject, with_unit=False, brief=brief)

    def outcome(self, stage: Stage) -> CaseOutcome | None:
        return self.book.record.outcome(self.subject.case, stage)

    def why(self, stage: Stage) -> str:
        """Why the case has no result of a stage."""
        return self.book.record.missing(self.subject.case, stage).text


def gate_badge(judgement: Judgement, href: str) -> Cell:
    """The gate's outcome as a badge that links to ``href``."""
    counts = judgement.counts()
    title = summary(judgement)
    if counts["fail"]:
        return Cell(f"{counts['fail']:,} failed", title=title, mark="fail", href=href)
    if not judgement.limits:
        return Cell("nothing checked", title=title, mark=UNMEASURED, href=href)
    if judgement.gaps:
        return Cell(f"{len(judgement.gaps):,} required {UNMEASURED}", title=title, mark=UNMEASURED, href=href)
    unmeasured = f", {counts['unmeasured']:,} optional {UNMEASURED}" if counts["unmeasured"] else ""
    return Cell(f"gate passed{unmeasured}", title=title, mark="pass", href=href)


def origin_line(record: Record) -> str:
    """The run, its date, commit and GPU, the joined runs, for the top of each page."""
    gpu = f"measured on {record.environment.gpu}" if record.environment.gpu else "recorded without a GPU"
    joined = "".join(f"; {o.what} joined from run {o.run}, {o.machine} ({o.arch})" for o in record.joined)
    return f"Run {record.id}, {record.created[:10]}, {_commit(record)}; {gpu}{joined}"


def _commit(record: Record) -> str:
    e = record.environment
    if e.git_commit is None:
        return "source unknown"
    return f"source {e.git_commit[:12]}" + (" with uncommitted changes" if e.git_dirty else "")


def provenance(record: Record) -> list[tuple[str, str]]:
    """The run's machine and tools, as (name, value)."""
    e = record.environment
    unknown = "unknown"
    rows = [
        ("run", record.id),
        ("recorded", record.created),
        ("command", record.command),
        ("source", _commit(record).removeprefix("source ")),
        ("host", ", ".join(filter(None, (e.host, e.os, e.cpu)))),
        ("GPU", e.gpu or "none on this machine"),
    ]
    if e.gpu:
        clock = f"up to {whole(e.gpu_sm_clock_mhz)} MHz" if e.gpu_sm_clock_mhz else f"clock {unknown}"
        memory = f"{whole(e.gpu_memory_bytes / 1e9)} GB" if e.gpu_memory_bytes else f"memory {unknown}"
        l2 = f"{whole(e.gpu_l2_bytes / 2**20)} MiB L2" if e.gpu_l2_bytes else f"L2 {unknown}"
        rows.append(("", f"{e.gpu_arch or unknown}, {e.gpu_sms or unknown} SMs, {clock}, {memory}, {l2}"))
        rows.append(("driver", f"{e.driver or unknown}, CUDA runtime {e.cuda_runtime or unknown}"))
    for gpu in record.gpus:
        cases = ", ".join(f"{stage} {len(cases):,}" for stage, cases in gpu.cases.items())
        clock = f", {whole(gpu.sm_clock_mhz)} MHz" if gpu.sm_clock_mhz else ""
        remark = f"; {gpu.remark}" if gpu.remark else ""
        rows.append((gpu.uuid, f"{gpu.host + ': ' if gpu.host else ''}{cases or 'no cases'}{clock}{remark}"))
    set_with = record.suite.nvcc
    rows += [
        ("nvcc", (e.nvcc or "absent") + (f" (static budgets were set with {set_with})" if set_with else "")),
        ("ncu", e.ncu or "absent"),
        ("torch", e.torch or "absent"),
        ("Python", e.python),
        ("harness", f"{e.harness}, record schema {record.schema_version}"),
    ]
    return [(name, value) for name, value in (*rows, *sorted(e.libraries.items())) if value]
