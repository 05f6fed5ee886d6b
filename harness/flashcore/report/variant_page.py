"""A variant's page: what it is, what it was meant to do, and every fact about it with its source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flashcore.explain import explain, predictions
from flashcore.gate.judge import Verdict
from flashcore.model.catalogue import FACTS, OWN_STAGE, RULE
from flashcore.model.record import Fact, Subject
from flashcore.model.suite import Prediction, Shape, Variant
from flashcore.model.text import quantity
from flashcore.report import occupancy_chart
from flashcore.report.case_view import case_view
from flashcore.report.cells import Cell, fact_cell, missing, not_applicable
from flashcore.report.guardrail_page import RANK, goal_row, value_cell
from flashcore.report.outcomes import outcome_cell
from flashcore.report.view import MAX_COLUMNS, Book, Page
from flashcore.report.view import variant_page as name_of

#: The columns of the table of times: fact, heading.
TIMES = (
    ("isolated_p50", "isolated p50"), ("isolated_p90", "p90"), ("isolated_p99", "p99"),
    ("back_to_back_p50", "back to back"), ("cold_p50", "cold"), ("eager_p50", "eager"),
    ("isolated_launch_floor", "empty launch"), ("tflops", "TFLOP/s"), ("bench_sm_clock", "SM clock"),
)  # fmt: skip
MOST_VERDICTS = 12
OCCUPANCY = ("theoretical_occupancy", "occupancy_limiter", "blocks_per_sm", "waves", "threads", "blocks",
             "dynamic_smem", "smem", "workspace_bytes")  # fmt: skip


def page(book: Book, variant: Variant) -> Page:
    """The page of one variant."""
    suite = book.record.suite
    shapes = book.shapes_of(variant)
    shown = shapes[:MAX_COLUMNS]
    names = list(suite.variants)
    at = names.index(variant.name)
    context: dict[str, Any] = {
        "variant": variant,
        "role": book.role(variant),
        "limits": not_applicable("peers carry no budgets")
        if variant.is_reference
        else book.badge(book.verdicts.get(variant.name, ())),
        "before": names[at - 1] if at else "",
        "after": names[at + 1] if at + 1 < len(names) else "",
        "children": [v.name for v in suite.variants.values() if v.parent == variant.name],
        "known_parent": variant.parent in suite.variants,
        "predictions": [_prediction(book, variant, p) for p in variant.predictions],
        "gpu": book.record.gpu,
        "builds": _builds(book, variant),
        "outcomes": _outcomes(book, variant),
        "static": _static(book, variant),
        "plans": _plans(book, variant),
        "occupancy": _occupancy(book, variant, shown),
        "next_steps": _next_steps(book, variant, shown),
        "times": TIMES,
        "timing": [_timing(book, variant, s) for s in shown if "bench" in s.stages],
        "counters": _counters(book, variant, shown),
        "findings": _findings(book, variant, shown),
        "cases": [case_view(book, variant, s) for s in _looked_into(book, variant, shown)],
        "checks": _checks(book, variant),
        "verdicts": _verdicts(book, variant),
        "verdict_total": sum(v.severity == "limit" for v in book.verdicts.get(variant.name, ())),
        "goals": [goal_row(v) for v in book.verdicts.get(variant.name, ()) if v.severity == "goal"][:MOST_VERDICTS],
        "shapes_left_out": len(shapes) - len(shown),
        "arch": book.arch,
    }
    return Page(name_of(variant.name), variant.name, "variant.html.j2", context)


# --- what it was meant to do --------------------------------------------------------------------


def _prediction(book: Book, variant: Variant, p: Prediction) -> dict[str, Any]:
    """A prediction beside what was measured, of the parent and of this variant."""
    shapes = book.shapes_of(variant)
    shape = p.shape or (shapes[0].name if shapes else "")
    spec = FACTS.get(p.fact)

    def found(name: str) -> Cell:
        own = book.record.suite.variants.get(name)
        if own is None:
            return missing(f"no variant {name}")
        if spec is not None and (spec.group == "static"):
            return book.static_cell(p.fact, own, shape)
        return book.cell(p.fact, Subject(name, shape=shape))

    judged = predictions.judge_one(book.readings, p, variant, shape)

    def said(value: float | None) -> str:
        return "not said" if value is None else " ".join(quantity(value, p.unit)).strip()

    return {
        "fact": p.fact,
        "why": spec.why if spec else "",
        "before": said(p.before),
        "after": said(p.after),
        "source": p.source,
        "device": p.device or "no device named",
        "shape": shape,
        "parent": found(variant.parent) if variant.parent else not_applicable("it has no parent"),
        "own": found(variant.name),
        "outcome": outcome_cell(judged.outcome, judged.note),
        "finding": judged.finding,
    }


# --- static -------------------------------------------------------------------------------------


def _builds(book: Book, variant: Variant) -> list[dict[str, Any]]:
    found = []
    for arch in book.record.suite.archs:
        artifact = book.artifacts.get((variant.name, arch))
        reason = variant.where.unsupported.get(arch, "")
        if variant.is_reference or (artifact is None and arch not in variant.where.archs and not reason):
            continue
        status = artifact.status if artifact else "unsupported" if reason else "not built"
        marks = {"ok": "pass", "failed": "fail", "unsupported": "open"}
        found.append(
            {
                "arch": arch,
                "status": {"ok": "built", "failed": "failed"}.get(status, status),
                "mark": marks.get(status, "unmeasured"),
                "message": (artifact.message if artifact else "") or reason,
                "flags": " ".join(artifact.flags) if artifact else "",
                "code": artifact.code[:16] if artifact else "",
            }
        )
    return found


def _outcomes(book: Book, variant: Variant) -> list[dict[str, Any]]:
    """Cases that are not plainly fine, by their outcomes, with the reason in full."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for o in book.record.outcomes:
        if o.variant == variant.name and o.status != "ok" and o.case not in book.record.stale:
            groups.setdefault((o.status, o.reason), {}).setdefault(o.shape, []).append(o.stage)
    for case, reason in book.record.stale.items():
        if case.startswith(f"{variant.name}/"):
            groups.setdefault(("stale", reason), {})[case.partition("/")[2]] = ["all measured stages"]
    marks = {"failed": "fail", "unsupported": "open", "stale": "stale"}
    return [
        {
            "mark": marks.get(status, "unmeasured"),
            "status": status,
            "reason": reason or "no reason was recorded",
            "where": "; ".join(f"{shape}: {', '.join(stages)}" for shape, stages in list(cases.items())[:40]),
            "more": max(0, len(cases) - 40),
        }
        for (status, reason), cases in groups.items()
    ][:200]


def _static(book: Book, variant: Variant) -> dict[str, Any]:
    """Static facts that need no plan: a row a fact, a column for each arch and kernel."""
    columns: dict[tuple[str, str], None] = {}
    table: dict[str, dict[tuple[str, str], Fact]] = {}
    for fact in book.record.facts.of(variant.name):
        s = fact.subject
        if s.arch is not None and s.shape is None:
            key = (s.arch, s.kernel or "all kernels")
            columns[key] = None
            table.setdefault(fact.name, {})[key] = fact
    order = list(FACTS)
    names = sorted(table, key=lambda n: order.index(n) if n in FACTS else len(order))
    ordered = sorted(
        columns, key=lambda c: book.record.suite.archs.index(c[0]) if c[0] in book.record.suite.archs else 99
    )
    return {
        "columns": ordered,
        "rows": [_fact_row(book, n, [table[n].get(c) for c in ordered], "not recorded") for n in names],
    }


def _fact_row(book: Book, name: str, facts: Sequence[Fact | None], reason: str) -> dict[str, Any]:
    spec = FACTS.get(name)
    sources = list(dict.fromkeys(f.source.value for f in facts if f is not None))
    return {
        "name": name,
        "why": spec.why if spec else "",
        "group": spec.group if spec else "other",
        "better": spec.better if spec else "",
        "source": ", ".join(sources),
        "metric": spec.ncu or "" if spec else "",
        "cells": [
            replace(fact_cell(f, brief=True), sort=None) if f is not None else missing(reason, name) for f in facts
        ],
    }


def _plans(book: Book, variant: Variant) -> dict[str, Any]:
    """What one call launches: a row for each distinct launch of a kernel, with the grids by shape."""

    def dims(d: tuple[int, int, int]) -> str:
        return " × ".join(f"{n:,}" for n in d)

    ways: dict[tuple[str, str, str, str], list[str]] = {}
    own = [p for p in book.record.plans if p.variant == variant.name]
    for plan in own:
        for x in plan.launches:
            way = (x.kernel, dims(x.block), dims(x.cluster), f"{x.dynamic_smem:,} B")
            ways.setdefault(way, []).append(f"{plan.shape} {dims(x.grid)}")
    spaces: dict[int, list[str]] = {}
    for plan in own:
        if plan.workspace_bytes:
            spaces.setdefault(plan.workspace_bytes, []).append(plan.shape)
    return {
        "rows": [(*way, "; ".join(grids[:MAX_COLUMNS])) for way, grids in ways.items()],
        "workspace": "; ".join(f"{size:,} B at {', '.join(shapes)}" for size, shapes in spaces.items()),
        "errors": [(p.shape, p.error) for p in own if p.error],
    }


def _occupancy(book: Book, variant: Variant, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Facts by the launch plan: a row for each arch and kernel, with equal shapes in one."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for arch in book.record.suite.archs:
        for shape in shapes:
            kernels: dict[str | None, dict[str, Fact]] = {}
            for name in OCCUPANCY:
                for fact in book.static(variant.name, name, arch, shape.name):
                    if fact.subject.shape is not None:
                        kernels.setdefault(fact.subject.kernel, {})[name] = fact
            whole = kernels.pop(None, {})
            for kernel, own in (kernels or ({None: {}} if whole else {})).items():
                facts = [own.get(n, whole.get(n)) for n in OCCUPANCY]
                key = (arch, kernel, *(f.value if f else None for f in facts))
                row = rows.setdefault(key, {"arch": arch, "shapes": [], "kernel": kernel or "all kernels",
                                            "cells": _fact_row(book, "", facts, "not recorded")["cells"]})  # fmt: skip
                row["shapes"].append(shape.name)
    return {"names": [(n, FACTS[n].why) for n in OCCUPANCY], "rows": list(rows.values())[:200]}


def _next_steps(book: Book, variant: Variant, shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """What limits occupancy on the shown arch, and what the next block would need, once for equal shapes."""
    if book.arch is None:
        return []
    plans = {p.shape: p for p in book.record.plans if p.variant == variant.name}
    alike: dict[tuple[object, ...], list[str]] = {}
    for shape in shapes:
        if shape.name in plans:
            launches = ((x.kernel, x.block, x.cluster, x.dynamic_smem) for x in plans[shape.name].launches)
            alike.setdefault(tuple(dict.fromkeys(launches)), []).append(shape.name)
    found: dict[tuple[str | None, int, int, int, tuple[str, ...]], tuple[explain.Step, list[str]]] = {}
    for names in alike.values():
        for step in explain.what_ifs(book.record, plans[names[0]], book.arch):
            key = (step.subject.kernel, step.threads, step.registers, step.smem, tuple(step.lines))
            found.setdefault(key, (step, []))[1].extend(names)
    return [
        {
            "kernel": step.subject.kernel or "",
            "lines": step.lines,
            "shapes": ", ".join(names),
            "chart": occupancy_chart.charts(step),
        }
        for step, names in found.values()
    ]


# --- measured -----------------------------------------------------------------------------------


def _looked_into(book: Book, variant: Variant, shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes that were profiled; without any the first."""
    facts = book.record.facts
    found = [s for s in shapes if facts.number("ncu_duration", Subject(variant.name, shape=s.name)) is not None]
    return found or list(shapes[:1])


def _timing(book: Book, variant: Variant, shape: Shape) -> list[Cell]:
    subject = Subject(variant.name, shape=shape.name)
    held = book.held(variant.name, shape.name)
    cells = [book.cell(n, subject, with_unit=False, brief=True) for n, _ in TIMES]
    return [Cell(shape.name, title=shape.params_text, sort=shape.name), *cells,
            Cell(held.short or "unmeasured", title=held.text, sort=held.short)]  # fmt: skip


def _checks(book: Book, variant: Variant) -> dict[str, Any]:
    """Errors against fp64 of every shape that was checked."""
    known = {f.name for f in book.record.facts.of(variant.name) if f.number is not None}
    names = [n for n, s in FACTS.items() if s.group in OWN_STAGE and n in known]
    rows = []
    for o in book.record.outcomes:
        if o.variant == variant.name and o.stage == "check":
            subject = Subject(variant.name, shape=o.shape)
            mark = {"ok": "pass", "failed": "fail"}.get(o.status, "unmeasured")
            word = {"ok": "right", "failed": "wrong"}.get(o.status, o.status)
            cells = [replace(c, title=c.title if c.kind == "missing" else "", sort=None)
                     for c in (book.cell(n, subject) for n in names)]  # fmt: skip
            rows.append({"shape": o.shape, "word": word, "mark": mark, "reason": o.reason, "origin": o.origin,
                         "cells": cells})  # fmt: skip
    return {"names": [(n, FACTS[n].why) for n in names], "rows": rows[:200], "more": max(0, len(rows) - 200)}


#: How ncu marks a link in a text of its rules: `@section:Name:text@`, `@url:text:https:…@`, `@source:file:line:text@`.
_LINK = re.compile(r"@(?:section:[^:@]*:([^@]*)|url:([^@]*?):https?://[^@]*|source:[^@]*?:\d+:([^@]*))@")


def _plain(text: str) -> str:
    """A rule's text with only the words of its links."""
    return _LINK.sub(lambda found: next(filter(None, found.groups()), ""), text)


def _findings(book: Book, variant: Variant, shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """The findings of NVIDIA's rules about the launch that represents each case of an imported kernel, the largest
    estimate first."""
    facts, rows = book.record.facts, []
    said = [f for f in facts.of(variant.name) if f.name.startswith(RULE) and not f.name.endswith(".speedup")]
    for shape in shapes:
        time = facts.number("ncu_duration", Subject(variant.name, shape=shape.name))
        own = [f for f in said if f.subject.shape == shape.name and facts.number("ncu_duration", f.subject) == time]
        for fact in own:
            if fact.subject == own[0].subject:
                speedup = facts.get(f"{fact.name}.speedup", fact.subject)
                rows.append({"shape": shape.name, "rule": fact.name.removeprefix(RULE), "text": _plain(str(fact.value)),
                             "speedup": fact_cell(speedup) if speedup else not_applicable("no estimate")})  # fmt: skip
    return sorted(rows, key=lambda row: -(row["speedup"].sort or 0.0))


def _counters(book: Book, variant: Variant, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Counters: a row a fact, a column for each case, then one for each of its kernels if it has several."""
    by_subject: dict[Subject, None] = {}
    found: dict[str, None] = {}
    for fact in book.record.facts.of(variant.name):
        spec = FACTS.get(fact.name)
        measured = spec is None or (spec.tier == "counters" and spec.group not in OWN_STAGE)
        if fact.subject.arch is None and measured and fact.subject.shape and fact.subject.launch is None:
            by_subject[fact.subject] = None
            found[fact.name] = None
    columns: list[Subject] = []
    for shape in shapes:
        own = [s for s in by_subject if s.shape == shape.name]
        kernels = [s for s in own if s.kernel]
        columns += [s for s in own if not s.kernel] + (kernels if len(kernels) > 1 else [])
    shown = columns[:MAX_COLUMNS]
    known = set(FACTS)
    order = [n for n in FACTS if n in found] + [n for n in found if n not in known]
    groups: dict[str, list[dict[str, Any]]] = {}
    gone: dict[str, list[str]] = {}
    zero: list[str] = []
    for name in order:
        if f"stall_share_{name.removeprefix('stall_')}" in found:
            continue  # its share says the same
        facts = [book.record.facts.get(name, s) for s in shown]
        if facts and all(f is not None and f.number == 0 for f in facts):
            zero.append(name)
            continue
        row = _fact_row(book, name, facts, "")
        row["cells"] = [
            c if f is not None else _absent(book, name, s) for c, f, s in zip(row["cells"], facts, shown, strict=True)
        ]
        if all(c.kind == "missing" for c in row["cells"]):
            gone.setdefault(row["cells"][0].title.partition(": ")[2] or row["cells"][0].title, []).append(name)
        else:
            groups.setdefault(str(row["group"]), []).append(row)
    reasons = dict.fromkeys(book.why_stage(variant.name, s.name, "profile") for s in shapes if "profile" in s.stages)
    return {
        "columns": [(s.shape, s.kernel) for s in shown],
        "groups": list(groups.items()),
        "gone": list(gone.items()),
        "zero": zero,
        "more": len(columns) - len(shown),
        "reason": "; ".join(list(reasons)[:4]) or "none of its shapes is profiled",
    }


def _absent(book: Book, name: str, subject: Subject) -> Cell:
    """A counter that a column lacks: some are about the case as a whole."""
    if subject.kernel and book.record.facts.get(name, Subject(subject.variant, shape=subject.shape)) is not None:
        return not_applicable("about the case as a whole")
    return missing(book.why(name, subject), name)


def _verdicts(book: Book, variant: Variant) -> list[dict[str, Any]]:
    """Verdicts that are not plainly kept, worst first; a budget that is unmeasured for one reason has one row."""
    limits = [v for v in book.verdicts.get(variant.name, ()) if v.severity == "limit" and v.status != "pass"]
    alike: dict[tuple[str, ...], list[Verdict]] = {}
    for v in sorted(limits, key=lambda v: RANK[v.status]):
        key = (v.budget, v.reason) if v.status == "unmeasured" else (v.budget, v.reason, str(v.subject))
        alike.setdefault(key, []).append(v)
    own = list(alike.values())
    return [
        {
            "cells": [
                Cell(v.status, sort=float(RANK[v.status]), mark=v.status),
                Cell(v.budget, title=f"on the fact {v.fact}", sort=v.budget),
                Cell(_subjects(variant, same), sort=str(v.subject)),
                value_cell(v),
                Cell(v.limit, sort=v.limit),
                Cell(v.source, sort=v.source),
                _reason(v.reason.strip()),
            ]
        }
        for same in own[:MOST_VERDICTS]
        for v in same[:1]
    ]


def _reason(reason: str) -> Cell:
    """Its first line; on hover all of it, where there is more."""
    first, _, more = reason.partition("\n")
    return Cell(first or "as promised", title=reason if more else "")


def _subjects(variant: Variant, verdicts: Sequence[Verdict]) -> str:
    """What the verdicts are about, below the variant; of many the first three."""
    names = [str(v.subject).removeprefix(variant.name).lstrip("/ ") or "the variant" for v in verdicts]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
