"""A variant's page: its purpose, its predictions, and all its facts with their sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flashcore.explain import predictions
from flashcore.explain.answer import Correctness
from flashcore.explain.verdict import Verdict
from flashcore.model.case import Case
from flashcore.model.catalogue import FACTS, GROUP_STAGE, RULE
from flashcore.model.groups import grouped
from flashcore.model.record import Artifact, CaseSubject, Dim3, Fact, Plan, unlaunched_note
from flashcore.model.suite import Prediction, Shape, Variant
from flashcore.model.text import UNMEASURED, abbreviated, quantity
from flashcore.report.budget_page import RANK, value_cell
from flashcore.report.case_view import CaseView
from flashcore.report.cells import Cell, Table, check_cell, fact_cell, missing, not_applicable, prediction_cell
from flashcore.report.view import MAX_COLUMNS, SOURCE, Book, Page, ShownCase
from flashcore.report.view import variant_page as name_of

#: The columns of the table of times: fact, heading, unit.
TIMES = (
    ("isolated_p50", "isolated p50", "µs"),
    ("isolated_p90", "p90", "µs"),
    ("isolated_p99", "p99", "µs"),
    ("back_to_back_p50", "back to back", "µs"),
    ("cold_p50", "cold", "µs"),
    ("eager_p50", "eager", "µs"),
    ("isolated_launch_floor", "empty launch", "µs"),
    ("tflops", "rate", "TFLOP/s"),
    ("bench_sm_clock", "SM clock", "MHz"),
)
#: Of an imported kernel.
IMPORTED_TIMES = (
    ("ncu_duration", "under ncu", "µs"),
    ("profiled_launches", "launches", ""),
    ("sm_clock", "SM clock", "MHz"),
)
#: The columns of the table of occupancy: fact → unit.
OCCUPANCY = {
    "theoretical_occupancy": "%", "occupancy_limiter": "", "blocks_per_sm": "", "waves": "", "blocks": "", "smem": "B"
}  # fmt: skip
#: Reasons for missing facts of the launch plan that depend on more than the plan.
_ABSENT = {"waves": "no GPU of this arch was measured, so its number of SMs is unknown"}
MOST_VERDICTS, MOST_SHAPES, MOST_ROWS = 12, 40, 200
#: Links in ncu's rule texts: `@section:Name:text@`, `@url:text:https:…@`, `@source:file:line:text@`.
_LINK = re.compile(r"@(?:section:[^:@]*:([^@]*)|url:([^@]*?):https?://[^@]*|source:[^@]*?:\d+:([^@]*))@")


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters by group, with a column for each case or kernel.

    Args:
        unmeasured: reason → counters that no column has.
        zero: counters that are 0 in every column.
        more: number of omitted columns.
    """

    columns: list[CaseSubject]
    groups: dict[str, Table]
    unmeasured: dict[str, list[str]]
    zero: list[str]
    more: int


@dataclass(frozen=True)
class VariantView:
    """The content of one variant's page."""

    book: Book
    variant: Variant
    occupancy_heads = ("arch", "shapes", "kernel", *((name, unit, FACTS[name].why) for name, unit in OCCUPANCY.items()))

    @cached_property
    def shapes(self) -> list[Shape]:
        return [s for s in self.book.shapes if self.variant.runs_on(s)]

    @cached_property
    def shown(self) -> list[CaseView]:
        """The displayed cases."""
        return [CaseView(self.book, self.variant, s) for s in self.shapes[:MAX_COLUMNS]]

    @cached_property
    def facts(self) -> list[Fact]:
        return self.book.record.facts.of(self.variant.name)

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Shape → launch plan on the displayed arch."""
        plans = self.book.readings.plans(self.book.arch).values()
        return {p.shape: p for p in plans if p.variant == self.variant.name}

    # --- predictions ----------------------------------------------------------------------------

    @property
    def predictions(self) -> Table:
        return [self._prediction(p) for p in self.variant.predictions]

    def _prediction(self, p: Prediction) -> list[Cell]:
        """The row of a prediction, with the parent's and this variant's measured values."""
        book, parent = self.book, self.variant.parent
        shape = p.shape or (self.shapes[0].name if self.shapes else "")
        judged = predictions.outcome_of(book.readings, p, self.variant, shape)
        before = not_applicable("it has no parent")
        if parent:
            declared = parent in book.record.suite.variants
            before = (
                book.cell(p.fact, CaseSubject(Case(parent, shape))) if declared else missing(f"no variant {parent}")
            )
        ends = (" ".join(quantity(value, p.unit)).strip() for value in (p.before, p.after) if value is not None)
        return [
            Cell(p.fact, title=FACTS[p.fact].why if p.fact in FACTS else "", detail=shape),
            Cell(" → ".join(ends), detail=f"for {p.device or 'any device'}"),
            Cell(p.source, kind="wrap"),
            before,
            book.cell(p.fact, CaseSubject(Case(self.variant.name, shape))),
            prediction_cell(judged.outcome, judged.note),
            Cell(judged.finding, kind="wrap"),
        ]

    # --- static ---------------------------------------------------------------------------------

    @property
    def correct(self) -> Correctness:
        """Whether its answers are correct."""
        return self.book.answers.correct(Case(self.variant.name, self.shapes[0].name if self.shapes else ""))

    @property
    def trouble(self) -> bool:
        """Whether a build, a check or a limit failed."""
        built = all(status != "failed" for status, *_ in self.builds)
        return not built or bool(self.correct.wrong or any(v.status == "fail" for v in self.limits))

    @cached_property
    def builds(self) -> list[tuple[str, list[str], str, list[Artifact]]]:
        """Its builds, those of one outcome together: status, archs, message, artifacts with code."""
        where = self.variant.where
        same: list[tuple[tuple[str, str], tuple[str, Artifact | None]]] = []
        for arch in self.book.record.suite.archs:
            artifact, reason = self.book.artifacts.get((self.variant.name, arch)), where.unsupported.get(arch, "")
            if artifact:
                status = {"ok": "built"}.get(artifact.status, artifact.status)
                same.append(((status, artifact.message or reason), (arch, artifact)))
            elif arch in where.archs or reason:
                same.append((("unsupported" if reason else "not built", reason), (arch, None)))
        return [
            (status, [arch for arch, _ in on], message, [a for _, a in on if a and a.code])
            for (status, message), on in grouped(same).items()
        ]

    @property
    def outcomes(self) -> list[tuple[str, str, str]]:
        """Failed or missing cases: status, full reason, cases."""
        failures = [x for x in self.book.failures if x.variant == self.variant.name]
        rows = []
        for (status, reason), cases in grouped(((x.status, x.reason), (x.shape, x.stage)) for x in failures).items():
            stages = [f"{shape}: {', '.join(names)}" for shape, names in grouped(cases).items()]
            more = f" and {len(stages) - MOST_SHAPES} more shapes" if len(stages) > MOST_SHAPES else ""
            rows.append((status, reason or "no reason was recorded", "; ".join(stages[:MOST_SHAPES]) + more))
        return rows[:MOST_ROWS]

    @property
    def static(self) -> tuple[list[tuple[str, str]], Table]:
        """Static facts that do not depend on the plan: columns (arch, kernel), and a row per fact."""
        static = (f for f in self.facts if f.subject.arch and f.subject.shape is None)
        facts = {(f.name, f.subject.arch or "", f.subject.kernel or "all kernels"): f for f in static}
        archs = [*self.book.record.suite.archs]
        columns = sorted(
            dict.fromkeys((arch, kernel) for _, arch, kernel in facts), key=lambda c: [*archs, c[0]].index(c[0])
        )
        rows = []
        for name in _in_order({name for name, *_ in facts}):
            recorded = [facts.get((name, *column)) for column in columns]
            cells = [_figure(f) if f else missing("not recorded", name) for f in recorded]
            rows.append([_name(name), *cells, Cell(_sources(recorded), kind="small")])
        return columns, rows

    @property
    def unlaunched(self) -> list[str]:
        """The count of the kernels without facts."""
        return unlaunched_note(a for a in self.book.record.artifacts if a.variant == self.variant.name)

    @property
    def launches(self) -> Table:
        """The launches of a call: kernel, block, cluster, dynamic shared memory, grids by shape."""
        grids = grouped(
            ((x.kernel, _dims(x.block), _dims(x.cluster), f"{x.dynamic_smem:,}"), f"{shape} {_dims(x.grid)}")
            for shape, plan in self.plans.items()
            for x in plan.launches
        )
        return [
            [
                Cell(kernel, kind="mono"),
                *(Cell(text, kind="number") for text in numbers),
                Cell("; ".join(on[:MAX_COLUMNS]), kind="wrap small"),
            ]
            for (kernel, *numbers), on in grids.items()
        ]

    @property
    def workspace(self) -> str:
        shapes = grouped((p.workspace_bytes, p.shape) for p in self.plans.values() if p.workspace_bytes)
        return "; ".join(f"{size:,} B on {', '.join(on)}" for size, on in shapes.items())

    @property
    def occupancy(self) -> Table:
        """Facts of the launch plan: a row per arch and kernel; equal shapes share a row."""
        same = grouped(
            ((arch, kernel, tuple(f.value if f else None for f in facts)), (case.shape.name, facts))
            for arch in self.book.record.suite.archs
            for case in self.shown
            for kernel, facts in self._occupancy(arch, case.shape)
        )
        return [
            [
                Cell(arch),
                Cell(", ".join(shape for shape, _ in on), kind="wrap"),
                Cell(kernel or "all kernels"),
                *(
                    _figure(f, with_unit=False) if f else missing(_ABSENT.get(n, "not recorded"))
                    for n, f in zip(OCCUPANCY, on[0][1], strict=True)
                ),
            ]
            for (arch, kernel, _), on in same.items()
        ][:MOST_ROWS]

    def _occupancy(self, arch: str, shape: Shape) -> Iterator[tuple[str | None, list[Fact | None]]]:
        static = (self.book.readings.static(name, self.variant.name, shape.name, arch) for name in OCCUPANCY)
        kernels = grouped((f.subject.kernel, f) for facts in static for f in facts if f.subject.shape is not None)
        of_case = kernels.pop(None, [])
        for kernel, facts in (kernels or ({None: of_case} if of_case else {})).items():
            by_name = {f.name: f for f in (*of_case, *facts)}
            yield kernel, [by_name.get(name) for name in OCCUPANCY]

    # --- measured -------------------------------------------------------------------------------

    @property
    def cases(self) -> list[CaseView]:
        """The profiled cases, or the first case if none is profiled."""
        return [c for c in self.shown if c.number("ncu_duration") is not None] or self.shown[:1]

    @property
    def times(self) -> Sequence[tuple[str, str, str]]:
        """The columns of the table of times, without those that no case has."""
        return [
            column
            for column in (*(IMPORTED_TIMES if self.variant.imported else ()), *TIMES)
            if any(case.number(column[0]) is not None for case in self.timed)
        ]

    @property
    def time_heads(self) -> list[Any]:
        return ["shape", *((name, unit) for _, name, unit in self.times), "limited by"]

    @property
    def timed(self) -> list[CaseView]:
        def is_timed(case: CaseView) -> bool:
            return "bench" in case.shape.stages or bool(self.variant.imported and case.number("ncu_duration"))

        return [case for case in self.shown if is_timed(case)]

    @property
    def timings(self) -> Table:
        return [self._timing(case) for case in self.timed]

    def _timing(self, case: ShownCase) -> list[Cell]:
        return [
            Cell(case.shape.name, title=case.shape.params_text, sort=case.shape.name),
            *(case.cell(name) for name, *_ in self.times),
            Cell(case.parts.short or UNMEASURED, title=case.parts.text, sort=case.parts.short, kind="wrap"),
        ]

    @cached_property
    def check_facts(self) -> list[str]:
        """The names of the measured errors."""
        measured = {f.name for f in self.facts if f.number is not None}
        return [n for n, s in FACTS.items() if s.group in GROUP_STAGE and n in measured]

    @property
    def check_heads(self) -> list[Any]:
        return ["shape", "correct", *((name, "", FACTS[name].why) for name in self.check_facts)]

    @property
    def checks(self) -> Table:
        """Errors against fp64 on every checked shape."""
        rows = []
        for check in self.book.record.outcomes:
            if (check.variant, check.stage) != (self.variant.name, "check"):
                continue
            subject = CaseSubject(Case(check.variant, check.shape))
            errors = (replace(self.book.cell(n, subject, brief=True), sort=None) for n in self.check_facts)
            reason = check.reason or (f"joined from run {check.origin}" if check.origin else "")
            rows.append([Cell(check.shape), check_cell(check, reason), *errors])
        return rows

    @property
    def findings(self) -> Table:
        """Findings of ncu's rules about the launch that represents each case of an imported kernel, the largest
        estimated speedup first."""
        facts, rows = self.book.record.facts, []
        rules = [f for f in self.facts if f.name.startswith(RULE) and not f.name.endswith(".speedup")]
        for case in self.shown:
            time, shape = case.number("ncu_duration"), case.shape.name
            here = [f for f in rules if f.subject.shape == shape and facts.number("ncu_duration", f.subject) == time]
            for fact in here:
                if fact.subject == here[0].subject:
                    speedup = facts.get(f"{fact.name}.speedup", fact.subject)
                    text = _LINK.sub(lambda match: next(filter(None, match.groups()), ""), str(fact.value))
                    estimate = fact_cell(speedup) if speedup else not_applicable("no estimate")
                    rows.append([Cell(fact.name.removeprefix(RULE)), Cell(shape), estimate, Cell(text, kind="wrap")])
        return sorted(rows, key=lambda row: -float(row[2].sort or 0.0))

    @property
    def no_counters(self) -> str:
        """Why there are no counters."""
        reasons = dict.fromkeys(case.why("profile") for case in self.shown if "profile" in case.shape.stages)
        return "; ".join(list(reasons)[:4]) or "none of its shapes is profiled"

    @cached_property
    def counters(self) -> Counters:
        """A row per fact, a column per case and, if it has several, per kernel."""
        counted = [f for f in self.facts if _is_counter(f)]
        subjects = dict.fromkeys(f.subject for f in counted if isinstance(f.subject, CaseSubject))
        by_shape = grouped((s.shape, s) for s in subjects)
        columns: list[CaseSubject] = []
        for case in self.shown:
            here = by_shape.get(case.shape.name, [])
            kernels = [s for s in here if s.kernel]
            columns += [s for s in here if not s.kernel] + (kernels if len(kernels) > 1 else [])
        shown = columns[:MAX_COLUMNS]
        rows, unmeasured, zero = [], [], []
        names = dict.fromkeys(f.name for f in counted)
        for name in _in_order(names):
            if f"stall_share_{name.removeprefix('stall_')}" in names or not shown:
                continue  # its share is shown instead
            facts = [self.book.record.facts.get(name, s) for s in shown]
            cells = [_figure(f) if f else self._absent(name, s) for f, s in zip(facts, shown, strict=True)]
            spec = FACTS.get(name)
            if all(f is not None and f.number == 0 for f in facts):
                zero.append(name)
            elif all(c.kind == "missing" for c in cells):
                unmeasured.append((cells[0].title.partition(": ")[2] or cells[0].title, name))
            else:
                metric = f" {spec.ncu}" if spec and spec.ncu else ""
                rows.append((spec.group if spec else "other", [_name(name, f"; {_sources(facts)}{metric}"), *cells]))
        return Counters(shown, grouped(rows), grouped(unmeasured), zero, len(columns) - len(shown))

    def _absent(self, name: str, subject: CaseSubject) -> Cell:
        """The cell of a counter missing in a column: some are about the whole case."""
        case = CaseSubject(subject.case)
        if subject.kernel and self.book.record.facts.get(name, case) is not None:
            return not_applicable("about the case as a whole")
        return missing(self.book.why(name, subject), name)

    # --- verdicts -------------------------------------------------------------------------------

    @property
    def limits(self) -> Sequence[Verdict]:
        return self.book.answers.budgets(self.variant.name).limits

    @property
    def verdicts(self) -> Table:
        """Limits that did not pass, worst first; a budget unmeasured for one reason has one row."""
        missed = sorted((v for v in self.limits if v.status != "pass"), key=lambda v: RANK[v.status])
        rows = grouped(((v.budget, v.reason, "" if v.status == "unmeasured" else str(v.subject)), v) for v in missed)
        return [self._verdict(same) for same in list(rows.values())[:MOST_VERDICTS]]

    def _verdict(self, same: Sequence[Verdict]) -> list[Cell]:
        v = same[0]
        first, _, more = v.reason.strip().partition("\n")
        names = [str(x.subject).removeprefix(self.variant.name).lstrip("/ ") or "the variant" for x in same]
        return [
            Cell(v.status, sort=float(RANK[v.status]), mark=v.status),
            Cell(v.budget, title=f"on the fact {v.fact}", sort=v.budget),
            Cell(abbreviated(names), sort=str(v.subject)),
            value_cell(v),
            Cell(v.limit, sort=v.limit),
            Cell(v.source, kind="wrap"),
            Cell(first or "within the limit", title=v.reason.strip() if more else "", kind="wrap"),
        ]


def page(book: Book, variant: Variant) -> Page[VariantView]:
    """The page of one variant."""
    view = VariantView(book, variant)
    listed = {listing.subject.case for listing in book.record.listings}
    scripts = (SOURCE,) if any(case.subject.case in listed for case in view.cases) else ()
    return Page(name_of(variant.name), variant.name, "variant.html.j2", view, scripts=scripts)


def _in_order(names: Iterable[str]) -> list[str]:
    """The names in the catalogue's order; phases, which it does not list, last."""
    order = {name: i for i, name in enumerate(FACTS)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def _is_counter(fact: Fact) -> bool:
    """Whether the fact is a hardware counter of a case or kernel."""
    spec, s = FACTS.get(fact.name), fact.subject
    counter = spec is None or (spec.tier == "counters" and spec.group not in GROUP_STAGE)
    return counter and bool(s.shape) and s.arch is None and s.launch is None


def _name(fact: str, origin: str = "") -> Cell:
    return Cell(fact, title=(FACTS[fact].why if fact in FACTS else "") + origin)


def _sources(facts: Iterable[Fact | None]) -> str:
    return ", ".join(dict.fromkeys(f.source.value for f in facts if f is not None))


def _figure(fact: Fact, *, with_unit: bool = True) -> Cell:
    return replace(fact_cell(fact, with_unit=with_unit, brief=True), sort=None)


def _dims(d: Dim3) -> str:
    return " × ".join(f"{n:,}" for n in d)
