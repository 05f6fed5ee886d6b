"""A variant's page: its purpose, its predictions, and every fact about it with its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from flashcore.explain import explain, predictions
from flashcore.gate.judge import Verdict
from flashcore.model.catalogue import FACTS, OWN_STAGE, RULE
from flashcore.model.groups import grouped
from flashcore.model.record import CaseOutcome, Fact, Plan, Subject
from flashcore.model.suite import Prediction, Shape, Variant
from flashcore.model.text import UNMEASURED, quantity
from flashcore.report import occupancy_chart
from flashcore.report.case_view import CaseView, case_view
from flashcore.report.cells import Cell, fact_cell, missing, not_applicable
from flashcore.report.guardrail_page import RANK, GoalRow, goal_row, value_cell
from flashcore.report.outcomes import check_cell, prediction_cell, status_mark
from flashcore.report.view import MAX_COLUMNS, Book, Page
from flashcore.report.view import variant_page as name_of

#: The columns of the table of times: fact, heading.
TIMES = (
    ("isolated_p50", "isolated p50"),
    ("isolated_p90", "p90"),
    ("isolated_p99", "p99"),
    ("back_to_back_p50", "back to back"),
    ("cold_p50", "cold"),
    ("eager_p50", "eager"),
    ("isolated_launch_floor", "empty launch"),
    ("tflops", "TFLOP/s"),
    ("bench_sm_clock", "SM clock"),
)
OCCUPANCY = (
    "theoretical_occupancy",
    "occupancy_limiter",
    "blocks_per_sm",
    "waves",
    "threads",
    "blocks",
    "dynamic_smem",
    "smem",
    "workspace_bytes",
)
MOST_VERDICTS, MOST_SHAPES, MOST_ROWS = 12, 40, 200


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters by group, a column for each (shape, kernel).

    Args:
        unmeasured: names of counters that no column has, by reason.
        zero: names of counters that are 0 in every column.
        more: columns left out.
        reason: why there are none at all.
    """

    columns: list[tuple[str | None, str | None]]
    groups: dict[str, list[list[Cell]]]
    unmeasured: dict[str, list[str]]
    zero: list[str]
    more: int
    reason: str


@dataclass(frozen=True)
class View:
    """The template's variables.

    Args:
        before, after: its neighbors in the manifest.
        children: the variants made from it.
        builds: arch, mark, status, message, flags, hash of the machine code.
        outcomes: what failed or is missing: mark, status, reason, cases.
        static_columns: (arch, kernel) of each column of ``static``: the facts that need no launch plan.
        plans: what one call launches: a row for each distinct launch of a kernel, with the grids by shape.
        next_steps: kernel, limits of its occupancy, shapes, chart.
        checks: errors against fp64 of every checked shape, a column for each of ``check_facts``.
        limits_total: the number of its limits; ``verdicts`` are those that did not pass, worst first.
    """

    variant: Variant
    role: str
    limits: Cell
    before: str
    after: str
    children: list[str]
    known_parent: bool
    predictions: list[list[Cell]]
    builds: list[tuple[str, str, str, str, str, str]]
    outcomes: list[tuple[str, str, str, str]]
    static_columns: list[tuple[str, str]]
    static: list[list[Cell]]
    plans: list[list[Cell]]
    workspace: str
    plan_errors: list[tuple[str, str]]
    occupancy: list[list[Cell]]
    next_steps: list[tuple[str, list[str], str, Markup]]
    timing: list[list[Cell]]
    counters: Counters
    findings: list[list[Cell]]
    cases: list[CaseView]
    check_facts: list[str]
    checks: list[list[Cell]]
    verdicts: list[list[Cell]]
    limits_total: int
    goals: list[GoalRow]
    shapes_left_out: int
    times: Sequence[tuple[str, str]] = TIMES
    occupancy_facts: Sequence[str] = OCCUPANCY


def page(book: Book, variant: Variant) -> Page[View]:
    """The page of one variant."""
    record, suite = book.record, book.record.suite
    shapes = [s for s in book.shapes if variant.runs_on(s)]
    shown = shapes[:MAX_COLUMNS]
    names = ["", *suite.variants, ""]
    at = names.index(variant.name)
    plans = {p.shape: p for p in record.plans if p.variant == variant.name}
    static_columns, static = _static(book, variant)
    check_facts, checks = _checks(book, variant)
    limits = book.verdicts(variant)
    view = View(
        variant=variant,
        role=book.role(variant),
        limits=book.limits_badge(variant),
        before=names[at - 1],
        after=names[at + 1],
        children=[v.name for v in suite.variants.values() if v.parent == variant.name],
        known_parent=variant.parent in suite.variants,
        predictions=[_prediction(book, variant, p, shapes) for p in variant.predictions],
        builds=_builds(book, variant),
        outcomes=_outcomes(book, variant),
        static_columns=static_columns,
        static=static,
        plans=_plans(list(plans.values())),
        workspace=_workspace(list(plans.values())),
        plan_errors=[(p.shape, p.error) for p in plans.values() if p.error],
        occupancy=_occupancy(book, variant, shown),
        next_steps=_next_steps(book, plans, shown),
        timing=[_timing(book, variant, s) for s in shown if "bench" in s.stages],
        counters=_counters(book, variant, shown),
        findings=_findings(book, variant, shown),
        cases=[case_view(book, variant, s) for s in _profiled(book, variant, shown)],
        check_facts=check_facts,
        checks=checks,
        verdicts=_verdicts(variant, limits),
        limits_total=len(limits),
        goals=[goal_row(v) for v in book.verdicts(variant, "goal")][:MOST_VERDICTS],
        shapes_left_out=len(shapes) - len(shown),
    )
    return Page(name_of(variant.name), variant.name, "variant.html.j2", view)


# --- predictions --------------------------------------------------------------------------------


def _prediction(book: Book, variant: Variant, p: Prediction, shapes: Sequence[Shape]) -> list[Cell]:
    """A prediction and what was measured, of the parent and of this variant."""
    shape = p.shape or (shapes[0].name if shapes else "")
    spec = FACTS.get(p.fact)

    def measured(name: str) -> Cell:
        declared = book.record.suite.variants.get(name)
        if declared is None:
            return missing(f"no variant {name}")
        if spec is not None and spec.group == "static":
            return book.static_cell(p.fact, declared, shape)
        return book.cell(p.fact, Subject(name, shape=shape))

    def predicted(value: float | None) -> Cell:
        return Cell("not said" if value is None else " ".join(quantity(value, p.unit)).strip(), kind="number")

    judged = predictions.judge_one(book.readings, p, variant, shape)
    return [
        Cell(p.fact, title=spec.why if spec else ""),
        predicted(p.before),
        predicted(p.after),
        Cell(p.device or "no device named"),
        Cell(p.source, kind="wrap"),
        Cell(", ".join(filter(None, (shape or "no shape", book.record.gpu)))),
        measured(variant.parent) if variant.parent else not_applicable("it has no parent"),
        measured(variant.name),
        prediction_cell(judged.outcome, judged.note),
        Cell(judged.finding, kind="wrap"),
    ]


# --- static -------------------------------------------------------------------------------------


def _builds(book: Book, variant: Variant) -> list[tuple[str, str, str, str, str, str]]:
    rows = []
    for arch in book.record.suite.archs:
        artifact = book.artifacts.get((variant.name, arch))
        reason = variant.where.unsupported.get(arch, "")
        if variant.is_reference or (artifact is None and arch not in variant.where.archs and not reason):
            continue
        if artifact is None:
            status = "unsupported" if reason else "not built"
            rows.append((arch, status_mark(status), status, reason, "", ""))
            continue
        status = {"ok": "built"}.get(artifact.status, artifact.status)
        message = artifact.message or reason
        rows.append((arch, status_mark(artifact.status), status, message, " ".join(artifact.flags), artifact.code[:16]))
    return rows


def _outcomes(book: Book, variant: Variant) -> list[tuple[str, str, str, str]]:
    """Cases that failed or are missing, by status and reason in full: mark, status, reason, cases."""
    failures = [x for x in book.failures if x.variant == variant.name]
    rows = []
    for (status, reason), cases in grouped(((x.status, x.reason), (x.shape, x.stage)) for x in failures).items():
        stages = [f"{shape}: {', '.join(names)}" for shape, names in grouped(cases).items()]
        where = "; ".join(stages[:MOST_SHAPES])
        more = f" and {len(stages) - MOST_SHAPES} more shapes" if len(stages) > MOST_SHAPES else ""
        rows.append((status_mark(status), status, reason or "no reason was recorded", where + more))
    return rows[:MOST_ROWS]


def _static(book: Book, variant: Variant) -> tuple[list[tuple[str, str]], list[list[Cell]]]:
    """Static facts that need no plan: a row for each fact, a column for each arch and kernel."""
    table: dict[str, dict[tuple[str, str], Fact]] = {}
    for fact in book.record.facts.of(variant.name):
        s = fact.subject
        if s.arch is not None and s.shape is None:
            table.setdefault(fact.name, {})[s.arch, s.kernel or "all kernels"] = fact
    archs = book.record.suite.archs
    columns = sorted(
        dict.fromkeys(column for facts in table.values() for column in facts),
        key=lambda column: archs.index(column[0]) if column[0] in archs else len(archs),
    )
    rows = []
    for name in _in_order(table):
        facts = table[name]
        cells = [_figure(facts.get(column), missing("not recorded", name)) for column in columns]
        rows.append([_name(name), *cells, Cell(_sources(facts.values()), kind="small")])
    return columns, rows


def _in_order(names: Iterable[str]) -> list[str]:
    """Facts in the order of the catalogue; phases, which it does not list, last."""
    order = {name: i for i, name in enumerate(FACTS)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def _name(fact: str, origin: str = "") -> Cell:
    return Cell(fact, title=(FACTS[fact].why if fact in FACTS else "") + origin, kind="number")


def _sources(facts: Iterable[Fact | None]) -> str:
    return ", ".join(dict.fromkeys(f.source.value for f in facts if f is not None))


def _figure(fact: Fact | None, absent: Cell) -> Cell:
    return replace(fact_cell(fact, brief=True), sort=None) if fact is not None else absent


def _dims(d: tuple[int, int, int]) -> str:
    return " × ".join(f"{n:,}" for n in d)


def _plans(plans: Sequence[Plan]) -> list[list[Cell]]:
    """What one call launches: kernel, block, cluster, dynamic shared memory, grids by shape."""
    grids = grouped(
        ((x.kernel, _dims(x.block), _dims(x.cluster), f"{x.dynamic_smem:,} B"), f"{plan.shape} {_dims(x.grid)}")
        for plan in plans
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


def _workspace(plans: Sequence[Plan]) -> str:
    shapes = grouped((p.workspace_bytes, p.shape) for p in plans if p.workspace_bytes)
    return "; ".join(f"{size:,} B at {', '.join(on)}" for size, on in shapes.items())


def _occupancy(book: Book, variant: Variant, shapes: Sequence[Shape]) -> list[list[Cell]]:
    """Facts by the launch plan: a row for each arch and kernel, with equal shapes in one."""
    rows: dict[tuple[object, ...], tuple[list[str], list[Cell]]] = {}
    for arch in book.record.suite.archs:
        for shape in shapes:
            kernels: dict[str | None, dict[str, Fact]] = {}
            for name in OCCUPANCY:
                for fact in book.readings.static(name, variant.name, shape.name, arch):
                    if fact.subject.shape is not None:
                        kernels.setdefault(fact.subject.kernel, {})[name] = fact
            of_case = kernels.pop(None, {})
            for kernel, by_name in (kernels or ({None: {}} if of_case else {})).items():
                facts = [by_name.get(n, of_case.get(n)) for n in OCCUPANCY]
                key = (arch, kernel, *(f.value if f else None for f in facts))
                cells = [Cell(kernel or "all kernels"), *(_figure(f, missing("not recorded")) for f in facts)]
                rows.setdefault(key, ([], [Cell(arch), *cells]))[0].append(shape.name)
    merged = [[cells[0], Cell(", ".join(on), kind="wrap"), *cells[1:]] for on, cells in rows.values()]
    return merged[:MOST_ROWS]


def _next_steps(
    book: Book, plans: dict[str, Plan], shapes: Sequence[Shape]
) -> list[tuple[str, list[str], str, Markup]]:
    """What limits occupancy on the shown arch, and what the next block would need, once for equal shapes."""
    if book.arch is None:
        return []
    alike = grouped(
        (tuple(dict.fromkeys((x.kernel, x.block, x.cluster, x.dynamic_smem) for x in plan.launches)), shape.name)
        for shape in shapes
        if (plan := plans.get(shape.name))
    )
    steps: dict[tuple[object, ...], tuple[explain.Step, list[str]]] = {}
    for names in alike.values():
        for step in explain.what_ifs(book.record, plans[names[0]], book.arch):
            key = (step.subject.kernel, step.threads, step.registers, step.smem, tuple(step.lines))
            steps.setdefault(key, (step, []))[1].extend(names)
    return [
        (step.subject.kernel or "", step.lines, ", ".join(names), occupancy_chart.charts(step))
        for step, names in steps.values()
    ]


# --- measured -----------------------------------------------------------------------------------


def _profiled(book: Book, variant: Variant, shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes that were profiled; without any the first."""
    facts = book.record.facts
    profiled = [s for s in shapes if facts.number("ncu_duration", Subject(variant.name, shape=s.name)) is not None]
    return profiled or list(shapes[:1])


def _timing(book: Book, variant: Variant, shape: Shape) -> list[Cell]:
    subject = Subject(variant.name, shape=shape.name)
    limiters = book.limiters(variant.name, shape.name)
    return [
        Cell(shape.name, title=shape.params_text, sort=shape.name),
        *(book.cell(n, subject, with_unit=False, brief=True) for n, _ in TIMES),
        Cell(limiters.short or UNMEASURED, title=limiters.text, sort=limiters.short),
    ]


def _checks(book: Book, variant: Variant) -> tuple[list[str], list[list[Cell]]]:
    """Errors against fp64 of every checked shape: their facts, and a row for each shape."""
    measured = {f.name for f in book.record.facts.of(variant.name) if f.number is not None}
    names = [n for n, s in FACTS.items() if s.group in OWN_STAGE and n in measured]
    checks = [o for o in book.record.outcomes if o.variant == variant.name and o.stage == "check"]
    return names, [_check(book, check, names) for check in checks]


def _check(book: Book, check: CaseOutcome, names: Sequence[str]) -> list[Cell]:
    cells = [book.cell(n, Subject(check.variant, shape=check.shape)) for n in names]
    reason = check.reason or (f"joined from run {check.origin}" if check.origin else "within its class")
    return [
        Cell(check.shape),
        check_cell(check),
        *(replace(c, title=c.title if c.kind == "missing" else "", sort=None) for c in cells),
        Cell(reason, kind="wrap"),
    ]


#: How ncu marks a link in a text of its rules: `@section:Name:text@`, `@url:text:https:…@`, `@source:file:line:text@`.
_LINK = re.compile(r"@(?:section:[^:@]*:([^@]*)|url:([^@]*?):https?://[^@]*|source:[^@]*?:\d+:([^@]*))@")


def _findings(book: Book, variant: Variant, shapes: Sequence[Shape]) -> list[list[Cell]]:
    """The findings of NVIDIA's rules about the launch that represents each case of an imported kernel, the largest
    estimate first."""
    facts, rows = book.record.facts, []
    rules = [f for f in facts.of(variant.name) if f.name.startswith(RULE) and not f.name.endswith(".speedup")]
    for shape in shapes:
        time = facts.number("ncu_duration", Subject(variant.name, shape=shape.name))
        here = [f for f in rules if f.subject.shape == shape.name and facts.number("ncu_duration", f.subject) == time]
        for fact in here:
            if fact.subject == here[0].subject:
                speedup = facts.get(f"{fact.name}.speedup", fact.subject)
                text = _LINK.sub(lambda match: next(filter(None, match.groups()), ""), str(fact.value))
                rows.append(
                    [
                        Cell(fact.name.removeprefix(RULE)),
                        Cell(shape.name),
                        fact_cell(speedup) if speedup else not_applicable("no estimate"),
                        Cell(text, kind="wrap"),
                    ]
                )
    return sorted(rows, key=lambda row: -float(row[2].sort or 0.0))


def _counters(book: Book, variant: Variant, shapes: Sequence[Shape]) -> Counters:
    """Counters: a row for each fact, a column for each case, then for each of its kernels if it has several."""
    subjects: dict[Subject, None] = {}
    names: dict[str, None] = {}
    for fact in book.record.facts.of(variant.name):
        spec = FACTS.get(fact.name)
        measured = spec is None or (spec.tier == "counters" and spec.group not in OWN_STAGE)
        if fact.subject.arch is None and measured and fact.subject.shape and fact.subject.launch is None:
            subjects[fact.subject] = None
            names[fact.name] = None
    columns: list[Subject] = []
    for shape in shapes:
        here = [s for s in subjects if s.shape == shape.name]
        kernels = [s for s in here if s.kernel]
        columns += [s for s in here if not s.kernel] + (kernels if len(kernels) > 1 else [])
    shown = columns[:MAX_COLUMNS]
    reasons = dict.fromkeys(book.why_stage(variant.name, s.name, "profile") for s in shapes if "profile" in s.stages)
    counters = Counters(
        [(s.shape, s.kernel) for s in shown],
        groups={},
        unmeasured={},
        zero=[],
        more=len(columns) - len(shown),
        reason="; ".join(list(reasons)[:4]) or "none of its shapes is profiled",
    )
    for name in _in_order(names):
        if f"stall_share_{name.removeprefix('stall_')}" in names:
            continue  # its share says the same
        facts = [book.record.facts.get(name, s) for s in shown]
        if facts and all(f is not None and f.number == 0 for f in facts):
            counters.zero.append(name)
            continue
        spec = FACTS.get(name)
        cells = [_figure(f, _absent(book, name, s)) for f, s in zip(facts, shown, strict=True)]
        if all(c.kind == "missing" for c in cells):
            title = cells[0].title if cells else ""
            counters.unmeasured.setdefault(title.partition(": ")[2] or title, []).append(name)
            continue
        metric = f" {spec.ncu}" if spec and spec.ncu else ""
        row = [_name(name, f"; {_sources(facts)}{metric}"), *cells]
        counters.groups.setdefault(spec.group if spec else "other", []).append(row)
    return counters


def _absent(book: Book, name: str, subject: Subject) -> Cell:
    """The cell of a counter that a column lacks: some are about the whole case."""
    if subject.kernel and book.record.facts.get(name, Subject(subject.variant, shape=subject.shape)) is not None:
        return not_applicable("about the case as a whole")
    return missing(book.why(name, subject), name)


# --- verdicts -----------------------------------------------------------------------------------


def _verdicts(variant: Variant, limits: Sequence[Verdict]) -> list[list[Cell]]:
    """Verdicts that did not pass, worst first; a budget that is unmeasured for one reason has one row."""
    missed = sorted((v for v in limits if v.status != "pass"), key=lambda v: RANK[v.status])
    alike = grouped(((v.budget, v.reason, "" if v.status == "unmeasured" else str(v.subject)), v) for v in missed)
    return [_verdict_row(variant, same) for same in list(alike.values())[:MOST_VERDICTS]]


def _verdict_row(variant: Variant, same: Sequence[Verdict]) -> list[Cell]:
    v = same[0]
    first, _, more = v.reason.strip().partition("\n")
    return [
        Cell(v.status, sort=float(RANK[v.status]), mark=v.status),
        Cell(v.budget, title=f"on the fact {v.fact}", sort=v.budget),
        Cell(_subjects(variant, same), sort=str(v.subject)),
        value_cell(v),
        Cell(v.limit, sort=v.limit),
        Cell(v.source, sort=v.source),
        Cell(first or "as promised", title=v.reason.strip() if more else ""),
    ]


def _subjects(variant: Variant, verdicts: Sequence[Verdict]) -> str:
    """The verdicts' subjects below the variant; of many the first three."""
    names = [str(v.subject).removeprefix(variant.name).lstrip("/ ") or "the variant" for v in verdicts]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
