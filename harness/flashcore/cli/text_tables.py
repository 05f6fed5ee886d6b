"""What the terminal shows: plain text tables that also read well in a log file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from flashcore.explain import diff, explain, roofline
from flashcore.explain.measured_roofs import Measured
from flashcore.explain.roofline import Bound
from flashcore.gate.judge import Judgement, Verdict, WaiverUse
from flashcore.gate.together import chip_of
from flashcore.gate.wording import summary, value_of
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.gate_policy import PREFIX
from flashcore.model.record import Artifact, CaseOutcome, Fact, Facts, Record, Subject
from flashcore.model.suite import TIERS, Stage, Suite
from flashcore.model.text import UNMEASURED, fixed, number, unit_text

_SHOWN = 48  # groups of verdicts that are listed; the rest are counted


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns under a header: text to the left, numbers to the right."""
    body = [list(r) for r in rows]
    right = {i for i in range(len(header)) if body and all(_is_number(r[i]) for r in body)}
    rule = ["-" * max(map(len, column)) for column in zip(header, *body, strict=True)]
    return "\n".join(_aligned([header, rule, *body], right))


def _aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.rjust if i in right else str.ljust for i in range(len(widths))]
    return ["  ".join(side(c, w) for side, c, w in zip(sides, row, widths, strict=True)).rstrip() for row in rows]


def _is_number(text: str) -> bool:
    return text in ("", "-", UNMEASURED) or text[:1].isdigit() or text[:1] in "+-."


def _show(fact: Fact | None, digits: int = 1) -> str:
    return fixed(None if fact is None else fact.value, digits)


# --- what was built and measured ------------------------------------------------------------------


def static(suite: Suite, artifacts: Sequence[Artifact], measured: Iterable[Fact]) -> str:
    """Registers, spills, shared memory and theoretical occupancy of each kernel, by arch."""
    facts = Facts(measured)
    rows: list[list[str]] = []
    for artifact in artifacts:
        if artifact.status != "ok":
            rows.append([artifact.variant, artifact.arch, artifact.status, *["-"] * 7])
            continue
        of_arch = [f for f in facts.of(artifact.variant) if f.subject.arch == artifact.arch]
        occupancies = {f.subject.kernel: f for f in reversed(of_arch) if f.name == "theoretical_occupancy"}
        for kernel in (f.subject for f in of_arch if f.name == "registers"):
            occupancy = occupancies.get(kernel.kernel)
            values = [facts.get(name, kernel) for name in _OF_KERNELS]
            if occupancy is None:
                values += [facts.get("static_smem", kernel), None, None]
            else:
                launch = occupancy.subject
                values += [facts.get("smem", launch), occupancy, facts.get("occupancy_limiter", launch)]
            rows.append([artifact.variant, artifact.arch, kernel.kernel or "", *map(_show, values)])
    header = ("variant", "arch", "kernel", *_OF_KERNELS.values(), "smem B", "occupancy %", "limited by")
    return grid(header, rows)


_OF_KERNELS = {
    "registers": "regs",
    "spill_store_bytes": "spill st B",
    "spill_load_bytes": "spill ld B",
    "stack_bytes": "stack B",
}
_TIMES = {
    "isolated_p50": "isolated p50 µs",
    "isolated_p90": "p90",
    "back_to_back_p50": "back to back p50",
    "cold_p50": "cold p50",
    "eager_p50": "eager p50",
    "speedup_vs_baseline": "x baseline",
    "speedup_vs_peer": "x peer",
}


def ladder(record: Record) -> str:
    """Times of each shape, fastest first, against the baseline and the fastest peer."""
    parts: list[str] = []
    facts = record.facts
    for shape in record.suite.shapes.values():
        rows: list[tuple[float, list[str]]] = []
        for variant in record.suite.variants.values() if "bench" in shape.stages else ():
            subject = Subject(variant.name, shape=shape.name)
            time = facts.get(shape.time, subject)
            if time is not None:
                name = variant.name + (" (peer)" if variant.is_reference else "")
                cells = [name, *(_show(facts.get(n, subject), 2) for n in _TIMES), _show(facts.get("tflops", subject))]
                rows.append((float("inf") if time.number is None else time.number, cells))
        if rows:
            table = grid(("variant", *_TIMES.values(), "TFLOP/s"), [cells for _, cells in sorted(rows)])
            parts.append(f"{shape.name} ({shape.params_text}), ranked by {shape.rank_by}\n{table}")
    return "\n\n".join(parts) or "no times were recorded"


def bounds(cases: Sequence[tuple[str, str, Sequence[Bound]]]) -> str:
    """The least time each resource allows, for each shape and compute dtype; the largest is the floor."""
    rows: list[list[str]] = []
    for shape, dtype, bounds in cases:
        lowest = roofline.floor(bounds)
        for bound in bounds:
            mark = "floor" if bound is lowest else ""
            amount = "-" if bound.amount is None else f"{bound.amount:,.0f} {bound.unit}"
            roof = bound.roof
            ceiling = bound.note if roof is None else f"{roof.value:,.4g} {unit_text(roof.unit)}, {roof.origin}"
            rows.append([shape, dtype, bound.resource, amount, fixed(bound.us, 2), mark, ceiling])
    return grid(("shape", "compute", "resource", "amount", "least µs", "", "roof"), rows)


def roofs(measured: Sequence[Measured]) -> str:
    """Every measured ceiling: value, value per clock cycle, the clock, the spread, the datasheet."""
    rows = [
        [
            one.subject.case,
            one.resource + (" (library)" if one.peer else ""),
            f"{one.value:,.4g}",
            unit_text(one.unit),
            fixed(one.per_clock, 1, "-"),
            fixed(one.clock_mhz, 0, "-"),
            fixed(one.spread, 4, "-"),
            fixed(one.temperature, 0, "-"),
            "-" if one.datasheet is None else f"{one.datasheet:,.4g}",
            fixed(None if one.ratio is None else 100 * one.ratio, 1, "-"),
        ]
        for one in sorted(measured, key=lambda m: (m.resource, m.unit == "us", -m.value))
    ]
    return grid(("case", "roof of", "measured", "unit", "a clock", "MHz", "std/p50", "C", "datasheet", "% of it"), rows)


def checked(record: Record) -> str:
    """The outcome of each case in check, failures first."""

    def cells(subject: Subject) -> list[str]:
        error = record.facts.number("max_error", subject)
        over = record.facts.get("frobenius_over_class", subject)
        return ["-" if error is None else f"{error:.2e}", _show(over, 2)]

    return grid(
        ("case", "status", "max error", "x class", "reason"),
        [[o.case, o.status, *cells(Subject(o.variant, shape=o.shape)), o.reason] for o in _outcomes(record, "check")],
    )


def sanitized(record: Record) -> str:
    """What compute-sanitizer found in each case, failures first."""
    names = [n for n, s in FACTS.items() if s.group == "sanitizer"]
    rows = []
    for o in _outcomes(record, "sanitize"):
        values = (record.facts.number(n, Subject(o.variant, shape=o.shape)) for n in names)
        rows.append([o.case, o.status, *(fixed(x, 0, "-") for x in values), o.reason])
    header = [n.removeprefix("sanitizer_").replace("_", " ") for n in names]
    return grid(["case", "status", *header, "reason"], rows)


def _outcomes(record: Record, stage: Stage) -> list[CaseOutcome]:
    return sorted((o for o in record.outcomes if o.stage == stage), key=lambda o: o.status == "ok")


# --- what a suite holds ---------------------------------------------------------------------------


def suite(declared: Suite) -> str:
    """Variants, shapes and budgets of a suite."""
    variants = [
        (v.name, v.parent or "-", v.origin, ", ".join(v.where.archs), v.technique) for v in declared.variants.values()
    ]
    shapes = [(s.name, s.params_text, ", ".join(s.stages)) for s in declared.shapes.values()]
    budgets = []
    for b in declared.budgets:
        limits = ("-" if limit is None else f"{limit:g}" for limit in (b.minimum, b.maximum))
        budgets.append((b.name, b.fact, *limits, b.unit, b.tier, b.severity, b.source))
    return "\n\n".join(
        [
            f"{declared.name}: {declared.title}",
            grid(("variant", "parent", "source", "archs", "technique"), variants),
            grid(("shape", "parameters", "stages"), shapes),
            grid(("budget", "fact", "min", "max", "unit", "tier", "severity", "source"), budgets),
        ]
    )


def facts() -> str:
    """Every fact's name, unit, tier and meaning."""
    rows = [(s.name, s.unit, s.tier or "-", s.ncu or "-", s.why) for s in FACTS.values()]
    rows.append((f"{PHASE_SHARE}<phase>", "pct", "counters", "-", "share of the warps' time in a phase that is marked"))
    return grid(("fact", "unit", "tier", "ncu metric", "meaning"), rows)


# --- what changed ---------------------------------------------------------------------------------


def difference(a: Record, b: Record, *, whole: bool = False) -> str:
    """The differences between two records; of a variant that one of them lacks the number of facts, or ``whole``."""
    lines = [f"{a.id} → {b.id}", *(f"note: {r}" for r in diff.remarks(a, b))]
    same, both = diff.same_builds(a, b)
    for side, one in (("before", a), ("after", b)):
        lines += [
            f"note: {x.variant} for {x.arch} does not build {side}" for x in one.artifacts if x.status == "failed"
        ]
    if both:
        lines.append(f"machine code: the same in {same} of {both} builds")
    lone = {} if whole else diff.one_sided(a, b)
    changes = [c for c in diff.changes(a, b) if c.subject.variant not in lone]
    where = " in the variants that both have" if lone else ""
    lines += ["", f"static facts: {f'{len(changes)} changed' if changes else 'no change'}{where}"]
    for variant, (how, count) in lone.items():
        lines.append(f"  {variant}  {how} with {count} facts (--variant {variant} lists them)")
    lines += [f"  {c.subject}  {_change(c)}" for c in changes]
    if not diff.comparable(a, b):
        times = diff.timing(a, b)
        lines += ["", "times (other runs: shown, not judged)" if times else "times: none on both sides"]
        for t in times:
            code = "; the same code" if t.same_code else ""
            medians = f"{number(round(t.before_us, 3))} → {number(round(t.after_us, 3), 'us')}"
            lines.append(f"  {t.subject}  {t.mode}  {medians}  {t.text}{code}")
            if t.mode == b.suite.shapes[t.subject.shape or ""].rank_by and not t.same_code and not t.low <= 1 <= t.high:
                lines += [f"    with it: {_change(c)}" for c in diff.moved(a, b, t.subject)]
    if imported := diff.imported(a, b):
        lines += ["", "imported (other runs: shown, not judged)"]
        for subject, moved in imported:
            lines += [f"  {subject}" + ("" if moved else "  no difference"), *(f"    {_change(c)}" for c in moved)]
    return "\n".join(lines)


def _change(change: diff.Change) -> str:
    return f"{change.fact}  {change.text}  {change.direction}"


# --- what the gate says ---------------------------------------------------------------------------


def of_chip(text: str, record: Record, records: Sequence[Record]) -> str:
    """The text about a run; below its chip's name where it is one of several."""
    return f"{record.gpu}, run {record.id}:\n{text}\n" if len(records) > 1 else text


def judgement(result: Judgement) -> str:
    """A judgement: failures first, the summary last."""
    gaps, tiers = result.own_gaps, TIERS[: TIERS.index(result.require) + 1]
    default = " (the default)" if result.require == TIERS[0] else ""
    other = [v for v in result.limits if v.status == "unmeasured" and not v.required]
    parts = [
        _group("FAILED", result.failed),
        _gaps(f"UNMEASURED, required by --require {result.require}{default}", [v for v in gaps if v.tier in tiers]),
        _gaps("UNMEASURED, required by --budgets", [v for v in gaps if v.tier not in tiers]),
        _group("waived", result.waived),
        _waivers(result.waivers),
        _loosened(result),
        _gaps("unmeasured, not required", other),
        _goals(result.goals),
        _passes(result.limits),
        [f"note: {n}" for n in result.notes],
    ]
    return "\n\n".join(["\n".join(p) for p in parts if p] + [summary(result)])


def _grouped(verdicts: Iterable[Verdict], key: Callable[[Verdict], object]) -> list[list[Verdict]]:
    groups: dict[object, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(key(verdict), []).append(verdict)
    return list(groups.values())


def _group(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Equal verdicts on several shapes, or failed builds for several archs, are one row, so that they do not bury
    another failure; the title counts them all."""

    def alike(v: Verdict) -> object:
        subject = replace(v.subject, shape=None, arch=None if v.budget == "builds" else v.subject.arch)
        return v.budget, subject, v.subject.shape is None, v.value, v.unit, v.limit, v.reason or v.source

    groups = _grouped(verdicts, alike)
    rows = []
    for v, *others in groups[:_SHOWN]:
        what = "shape" if v.subject.shape else "arch"
        more = f" and {len(others)} more {what}{'s' if len(others) > 1 else ''}" if others else ""
        rows.append((v.budget, f"{v.subject}{more}", value_of(v), v.limit, v.reason or v.source))
    hidden = sum(map(len, groups[_SHOWN:]))
    return _block(f"{title} ({len(verdicts)})", rows, [f"… and {hidden} more"] if hidden else [])


def _gaps(title: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Gaps by budget and reason: one missing machine makes hundreds that are all the same."""
    groups = _grouped(verdicts, lambda v: (v.budget, v.reason, chip_of(v.subject)))
    rows = [(v.budget, f"{v.subject}{f' and {len(rest)} more' if rest else ''}", v.reason) for v, *rest in groups]
    return _block(f"{title} ({len(verdicts)})", rows)


def _waivers(uses: Sequence[WaiverUse]) -> list[str]:
    states = {"not needed": "no longer needed", "expired": "expired on {}"}
    return [
        f"waiver {states[use.state].format(w.expires)}: {w.budget} on {', '.join(w.variants)} ({w.reason})"
        for use in uses
        if use.state in states and (w := use.waiver)
    ]


def _loosened(result: Judgement) -> list[str]:
    """All that the manifest loosens, with the reasons."""
    rows = []
    for use in result.loosened:
        w = use.waiver
        until = f"until {w.expires}" if w.expires else ""
        where = ", ".join(w.variants) if w.variants != ("*",) else "all variants"
        rows.append((w.budget, where, f"accepted {number(w.accepted)}", w.reason, until))
    return _block(f"loosened in the manifest ({len(rows) + len(result.relaxed)})", rows, result.relaxed)


def _goals(verdicts: Sequence[Verdict]) -> list[str]:
    """One line a goal: how many subjects reached it, and the one that is farthest from it."""
    rows = []
    for goal in _grouped(verdicts, lambda v: v.budget):
        first = goal[0]
        if first.budget.startswith(PREFIX) and all(v.status == "pass" for v in goal):
            continue  # facts that are only shown matter when they change
        measured = [v for v in goal if v.progress is not None]
        reached = sum(v.status == "pass" for v in measured)
        text = f"reached by {reached} of {len(goal)}"
        if len(measured) < len(goal):
            text += f", {len(goal) - len(measured)} unmeasured"
        remark = "" if measured else first.reason
        if reached < len(measured):
            worst = min(measured, key=lambda v: v.progress or 0.0)
            way = f"{100 * (worst.progress or 0.0):.0f} % of the way"
            remark = f"farthest: {worst.subject}, {number(worst.value, worst.unit)}, {way}"
        rows.append((first.budget, first.limit, text, remark))
    return _block(f"goals ({len(rows)})", rows)


def _passes(verdicts: Sequence[Verdict]) -> list[str]:
    """How many of each budget passed; a baseline's facts pass as one."""
    names = [("baseline" if v.budget.startswith(PREFIX) else v.budget, v.status) for v in verdicts]
    total = Counter(name for name, _ in names)
    passed = Counter(name for name, status in names if status == "pass")
    return _block(f"passed ({passed.total()})", [(name, f"{n} of {total[name]}") for name, n in passed.items()])


def _block(title: str, rows: Sequence[Sequence[str]], more: Sequence[str] = ()) -> list[str]:
    """A title over aligned, indented rows, of each cell its first line; nothing without rows."""
    lines = [*(_aligned([[c.splitlines()[0] if c else "" for c in row] for row in rows]) if rows else ()), *more]
    return [title, *(f"  {line}" for line in lines)] if lines else []


def next_steps(record: Record) -> str:
    """Every kernel on every arch: its occupancy, what limits it and the distance to the next step.

    Shapes on which a kernel is launched alike share a line.
    """
    lines: list[str] = []
    plans = {(p.variant, p.shape): p for p in record.plans}
    for variant in record.suite.variants:
        for arch in record.suite.archs:
            seen: dict[str, list[str]] = {}
            for shape in record.suite.shapes:
                for step in explain.what_ifs(record, plans.get((variant, shape)), arch):
                    pct = UNMEASURED if step.now.pct is None else f"{step.now.pct:.1f} %"
                    text = f"{variant}/{step.subject.kernel} ({arch}): {pct}; {'; '.join(step.lines)}"
                    seen.setdefault(text, []).append(shape)
            alike = len(seen) == len({text.split(":")[0] for text in seen})
            lines += [text if alike else f"{text} [{', '.join(shapes)}]" for text, shapes in seen.items()]
    return "\n".join(lines)
