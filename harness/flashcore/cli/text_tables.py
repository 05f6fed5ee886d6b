"""What the terminal shows: plain text tables that also read well in a log file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from flashcore.analysis import diff
from flashcore.model.catalogue import FACTS, PHASE_SHARE
from flashcore.model.record import Artifact, Fact, Facts, Record, Roof, Subject
from flashcore.model.suite import Shape, Suite
from flashcore.model.text import UNMEASURED, grid, number

if TYPE_CHECKING:
    from flashcore.analysis.measured_roofs import Measured


def show(fact: Fact | None, digits: int = 1) -> str:
    """A fact's value; ``unmeasured`` where there is none, never an empty cell."""
    if fact is None or fact.value is None:
        return UNMEASURED
    if isinstance(fact.value, float):
        return f"{fact.value:,.{digits}f}"
    return f"{fact.value:,}" if isinstance(fact.value, int) and not isinstance(fact.value, bool) else str(fact.value)


def static(suite: Suite, artifacts: Sequence[Artifact], found: Iterable[Fact]) -> str:
    """Registers, spills, shared memory and theoretical occupancy of each kernel, by arch."""
    facts = Facts(found)
    rows: list[list[str]] = []
    for artifact in artifacts:
        if artifact.status != "ok":
            rows.append([artifact.variant, artifact.arch, artifact.status, *["-"] * 7])
            continue
        kernels = [
            f.subject for f in facts.of(artifact.variant) if f.name == "registers" and f.subject.arch == artifact.arch
        ]
        for subject in kernels:
            occupancies = [
                f
                for f in facts.of(artifact.variant)
                if f.name == "theoretical_occupancy"
                and f.subject.arch == artifact.arch
                and f.subject.kernel == subject.kernel
            ]
            first = occupancies[0] if occupancies else None
            limiter = facts.get("occupancy_limiter", first.subject) if first else None
            rows.append(
                [
                    artifact.variant,
                    artifact.arch,
                    subject.kernel or "",
                    show(facts.get("registers", subject)),
                    show(facts.get("spill_store_bytes", subject)),
                    show(facts.get("spill_load_bytes", subject)),
                    show(facts.get("stack_bytes", subject)),
                    show(facts.get("smem", first.subject) if first else facts.get("static_smem", subject)),
                    show(first),
                    show(limiter),
                ]
            )
    header = [
        "variant",
        "arch",
        "kernel",
        "regs",
        "spill st B",
        "spill ld B",
        "stack B",
        "smem B",
        "occupancy %",
        "limited by",
    ]
    return grid(header, rows)


def ladder(record: Record) -> str:
    """Times of each shape, fastest first, against the baseline and the fastest peer."""
    parts: list[str] = []
    facts = record.facts
    for shape in record.suite.shapes.values():
        if "bench" not in shape.stages:
            continue
        rows: list[tuple[float, list[str]]] = []
        for variant in record.suite.variants.values():
            subject = Subject(variant.name, shape=shape.name)
            time = facts.get("warm_p50", subject)
            if time is None:
                continue
            rows.append(
                (
                    time.number if time.number is not None else float("inf"),
                    [
                        variant.name + (" (peer)" if variant.is_peer else ""),
                        show(time, 2),
                        show(facts.get("warm_p90", subject), 2),
                        show(facts.get("cold_p50", subject), 2),
                        show(facts.get("eager_p50", subject), 2),
                        show(facts.get("speedup_vs_baseline", subject), 2),
                        show(facts.get("speedup_vs_peer", subject), 2),
                        show(facts.get("tflops", subject), 1),
                    ],
                )
            )
        if rows:
            params = ", ".join(f"{k}={v}" for k, v in shape.params.items())
            header = ["variant", "warm p50 us", "p90", "cold p50", "eager p50", "x baseline", "x peer", "TFLOP/s"]
            table = grid(header, [r for _, r in sorted(rows, key=lambda x: (x[0], x[1][0]))])
            parts.append(f"{shape.name} ({params})\n{table}")
    return "\n\n".join(parts) or "no times were recorded"


def bounds(given: Suite, ceilings: Sequence[Roof], shapes: Sequence[Shape]) -> str:
    """The least time each resource allows, for each shape and compute dtype; the largest is the floor."""
    from flashcore.analysis import roofline
    from flashcore.worker.kernel_call import load_problem

    rows: list[list[str]] = []
    for shape in shapes:
        work = load_problem(given.root, given.problems[shape.problem].file).work(dict(shape.params))
        dtypes = dict.fromkeys(v.roof for v in given.variants.values() if v.problem == shape.problem)
        for dtype in dtypes:
            found = roofline.bounds(work, dtype, ceilings)
            lowest = roofline.floor(found)
            for bound in found:
                mark = "floor" if bound is lowest else ""
                time = f"{bound.us:,.2f}" if bound.us is not None else UNMEASURED
                amount = "-" if bound.amount is None else f"{bound.amount:,.0f} {bound.unit}"
                roof = bound.roof
                ceiling = bound.note if roof is None else f"{roof.value:,.4g} {roof.unit}, {roof.origin}"
                rows.append([shape.name, dtype, bound.resource, amount, time, mark, ceiling])
    header = ["shape", "compute", "resource", "amount", "least us", "", "roof"]
    return grid(header, rows)


def roofs(found: Sequence[Measured]) -> str:
    """Every ceiling measured: value, what that is in a clock, the clock, the spread, the datasheet."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    rows = [
        [
            one.subject.case,
            one.resource + (" (library)" if one.peer else ""),
            f"{one.value:,.4g}",
            one.unit,
            number(one.per_clock, ",.1f"),
            number(one.clock_mhz, ",.0f"),
            number(one.spread, ".4f"),
            number(one.temperature, ".0f"),
            number(one.datasheet, ",.4g"),
            number(None if one.ratio is None else 100 * one.ratio, ".1f"),
        ]
        for one in sorted(found, key=lambda m: (m.resource, m.unit == "us", -m.value))
    ]
    header = ["case", "roof of", "measured", "unit", "a clock", "MHz", "p90/p50", "C", "datasheet", "% of it"]
    return grid(header, rows)


def checked(record: Record) -> str:
    """What became of each case in check, failures first."""
    rows = []
    for o in sorted(record.outcomes, key=lambda o: o.status == "ok"):
        if o.stage == "check":
            subject = Subject(o.variant, shape=o.shape)
            error = record.facts.get("max_error", subject)
            over = record.facts.get("frobenius_over_class", subject)
            value = "-" if error is None or error.number is None else f"{error.number:.2e}"
            rows.append([o.case, o.status, value, show(over, 2), o.reason])
    return grid(["case", "status", "max error", "x class", "reason"], rows)


def sanitized(record: Record) -> str:
    """What compute-sanitizer found in each case, failures first."""
    names = [n for n, s in FACTS.items() if s.group == "sanitizer"]
    rows = []
    for o in sorted(record.outcomes, key=lambda o: o.status == "ok"):
        if o.stage == "sanitize":
            subject = Subject(o.variant, shape=o.shape)
            found = [record.facts.get(n, subject) for n in names]
            counts = ["-" if f is None or f.number is None else f"{f.number:.0f}" for f in found]
            rows.append([o.case, o.status, *counts, o.reason])
    header = [n.removeprefix("sanitizer_").replace("_", " ") for n in names]
    return grid(["case", "status", *header, "reason"], rows)


def suite(given: Suite) -> str:
    """Variants, shapes and budgets of a suite."""
    variants = [
        [v.name, v.parent or "-", v.source or v.callable or "", ", ".join(v.where.archs), v.technique]
        for v in given.variants.values()
    ]
    shapes = [
        [s.name, ", ".join(f"{k}={v}" for k, v in s.params.items()), ", ".join(s.stages)] for s in given.shapes.values()
    ]
    budgets = [
        [b.name, b.fact, "-" if b.minimum is None else f"{b.minimum:g}", "-" if b.maximum is None else f"{b.maximum:g}",
         b.unit, b.tier, b.severity, b.source]
        for b in given.budgets
    ]  # fmt: skip
    return "\n\n".join(
        [
            f"{given.name}: {given.title}",
            grid(["variant", "parent", "source", "archs", "technique"], variants),
            grid(["shape", "parameters", "stages"], shapes),
            grid(["budget", "fact", "min", "max", "unit", "tier", "severity", "source"], budgets),
        ]
    )


def facts() -> str:
    """Every fact's name, unit, tier and meaning."""
    rows = [[s.name, s.unit, s.tier or "-", s.ncu or "-", s.why] for s in FACTS.values()]
    rows.append([f"{PHASE_SHARE}<phase>", "pct", "counters", "-", "share of the warps' time in a phase that is marked"])
    return grid(["fact", "unit", "tier", "ncu metric", "meaning"], rows)


def difference(a: Record, b: Record) -> str:
    """The differences as plain text."""
    lines = [f"{a.id} → {b.id}", *(f"note: {r}" for r in diff.remarks(a, b))]
    same, both = diff.same_builds(a, b)
    for side, one in (("before", a), ("after", b)):
        lines += [
            f"note: {x.variant} for {x.arch} does not build {side}" for x in one.artifacts if x.status == "failed"
        ]
    if both:
        lines.append(f"machine code: the same in {same} of {both} builds")
    found = diff.changes(a, b)
    lines += ["", f"static facts: {len(found)} changed" if found else "static facts: no change"]
    for c in found:
        values = f"{number(c.before, c.unit)} → {number(c.after, c.unit)}"
        lines.append(f"  {c.subject}  {c.fact}  {values}  {c.direction}")
    if not diff.comparable(a, b):
        times = diff.timing(a, b)
        lines += ["", "times (other runs: shown, not judged)" if times else "times: none on both sides"]
        for t in times:
            code = "; the same code" if t.same_code else ""
            medians = f"{number(round(t.before_us, 3))} → {number(round(t.after_us, 3), 'us')}"
            lines.append(f"  {t.subject}  {t.mode}  {medians}  {t.text}{code}")
            if t.mode == "warm" and not t.same_code and not t.low <= 1 <= t.high:
                for c in diff.moved(a, b, t.subject):
                    values = f"{number(c.before)} → {number(c.after, c.unit)}"
                    lines.append(f"    with it: {c.fact}  {values}  {c.direction}")
    return "\n".join(lines)
