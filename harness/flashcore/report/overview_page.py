"""The overview: what ran where, what is missing and why, and the ladder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flashcore.gate.wording import summary
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Record, Subject
from flashcore.model.suite import Shape, Variant
from flashcore.model.text import UNMEASURED, significant
from flashcore.report import charts
from flashcore.report.cells import Cell, missing, not_applicable, number_cell
from flashcore.report.view import GUARDRAILS, INDEX, MAX_BARS, Book, Figure, Page, tile, variant_page

#: Of each regime; the one that ranks at a shape orders its rows.
TIMES = (("isolated", "p50"), ("isolated", "p90"), ("back_to_back", "p50"), ("cold", "p50"))
COLUMNS = (
    ("variant", "", "links to its page"),
    ("right?", "", "against fp64, within its tolerance class"),
    ("limits", "", "verdicts on its limits, over all archs and shapes"),
    *((f"{regime} {stat}".replace("_", " "), "µs", FACTS[f"{regime}_{stat}"].why) for regime, stat in TIMES),
    ("× baseline", "", "speed-up over the baseline, with its 95 % bootstrap interval"),
    ("× fastest peer", "", "the fastest peer's time over this one's, with its 95 % bootstrap interval"),
    ("TFLOP/s", "", "formula FLOPs over the median time of the regime that ranks"),
    ("floor", "µs", "the least time that any resource allows; hover names the resource"),
    ("gap", "×", "the time that ranks over the floor of that regime"),
    ("tensor active", "%", "share of active cycles in which the tensor pipe works"),
    ("occ. theory", "%", "theoretical occupancy of the launch plan"),
    ("occ. achieved", "%", "warps that were there over the most an SM holds"),
    ("regs", "", "registers a thread"),
    ("spills", "B", "bytes a thread spills, stores and loads (ptxas)"),
    ("smem", "B", "shared memory a block, static and dynamic"),
    ("parent", "", "the variant it was made from"),
    ("technique", "", "what it adds to its parent"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the ladder: its cells, and its class (peer, baseline, failed)."""

    cells: tuple[Cell, ...]
    role: str
    note: str = ""


def page(book: Book) -> Page:
    """The page ``index``."""
    record = book.record
    context: dict[str, Any] = {
        "tiles": _tiles(book),
        "summary": summary(book.judgement),
        "machine": _machine(record),
        "stages": record.stages,
        "joined": record.joined,
        "gaps": _gaps(book),
        "builds": _builds(book),
        "columns": COLUMNS,
        "ladders": [_ladder(book, s) for s in book.shown_shapes],
        "shapes_left_out": len(book.shapes) - len(book.shown_shapes),
        "arch": book.arch,
    }
    return Page(INDEX, "Overview", "overview.html.j2", context)


# --- the ladder ---------------------------------------------------------------------------------


def _ladder(book: Book, shape: Shape) -> dict[str, Any]:
    variants = book.cases(shape)
    facts = book.record.facts

    def time(v: Variant) -> float | None:
        return facts.number(shape.time, Subject(v.name, shape=shape.name))

    ordered = sorted(variants, key=lambda v: (time(v) is None, time(v) or 0.0))
    bars = [
        (v.name, book.role(v), t, facts.number(f"{shape.rank_by}_p90", Subject(v.name, shape=shape.name)))
        for v in ordered
        if (t := time(v)) is not None and t > 0
    ]
    figure: Figure | None = charts.times(f"times-{shape.name}", shape, bars) if bars else None
    reasons = dict.fromkeys(book.why_stage(v.name, shape.name, "bench") for v in variants) if not bars else {}
    return {
        "shape": shape,
        "params": shape.params_text,
        "rows": [_row(book, v, shape) for v in ordered],
        "figure": figure,
        "bars_left_out": max(0, len(bars) - MAX_BARS),
        "no_times": "; ".join(list(reasons)[:3]),
    }


def _row(book: Book, variant: Variant, shape: Shape) -> Row:
    subject = Subject(variant.name, shape=shape.name)

    def measured(name: str) -> Cell:
        return book.cell(name, subject, with_unit=False)

    role = book.role(variant)
    right, note = _right(book, variant, shape)
    name = Cell(variant.name, title=variant.technique, sort=variant.name, href=variant_page(variant.name),
                detail="" if role == "variant" else role)  # fmt: skip
    parent = variant.parent
    cells = (
        name,
        right,
        not_applicable("peers carry no budgets") if variant.is_peer
        else replace(book.badge(book.verdicts.get(variant.name, ())), href=f"{GUARDRAILS}?variant={variant.name}"),
        *(measured(f"{regime}_{stat}") for regime, stat in TIMES),
        _ratio(book, "speedup_vs_baseline", subject),
        _ratio(book, "speedup_vs_peer", subject),
        measured("tflops"),
        *_floor(book, subject, shape.time),
        measured("tensor_active"),
        book.static_cell("theoretical_occupancy", variant, shape.name, with_unit=False),
        measured("achieved_occupancy"),
        book.static_cell("registers", variant, with_unit=False),
        _spills(book, variant),
        book.static_cell("smem", variant, shape.name, with_unit=False),
        Cell(parent, sort=parent, href=variant_page(parent) if parent in book.record.suite.variants else "")
        if parent else Cell("none", title="it has no parent", sort=""),
        Cell(variant.technique, title=variant.technique, sort=variant.technique),
    )  # fmt: skip
    return Row(cells, role, note)


def _right(book: Book, variant: Variant, shape: Shape) -> tuple[Cell, str]:
    """Whether a case is right, and what to say in plain sight if it, or a later stage, is not."""
    stale = book.record.stale.get(f"{variant.name}/{shape.name}")
    if stale is not None:
        return Cell("stale", title=stale, sort=2.0, mark="stale"), f"stale: {stale}"
    note = ""
    for stage in ("check", "bench", "profile", "sanitize"):
        outcome = book.outcome(variant.name, shape.name, stage)
        if outcome is not None and outcome.status != "ok":
            note = f"{outcome.status} in {stage}: {outcome.reason}"
            break
    outcome = book.outcome(variant.name, shape.name, "check")
    if outcome is None:
        return missing(book.why_stage(variant.name, shape.name, "check")), note
    if outcome.status == "ok":
        error = book.cell("max_error", Subject(variant.name, shape=shape.name))
        return Cell("right", title=f"largest absolute error: {error.text}", sort=0.0, mark="pass"), note
    mark = "fail" if outcome.status == "failed" else "unmeasured"
    text = "wrong" if outcome.status == "failed" else outcome.status
    return Cell(text, title=outcome.reason, sort=1.0, mark=mark), note


def _ratio(book: Book, name: str, subject: Subject) -> Cell:
    cell = book.cell(name, subject, with_unit=False)
    facts = book.record.facts
    low, high = facts.number(f"{name}_low", subject), facts.number(f"{name}_high", subject)
    value = facts.number(name, subject)
    if value is None:
        return cell
    interval = f"{significant(low, 3)}–{significant(high, 3)}" if low is not None and high is not None else ""
    title = f"{cell.title}\n95 % interval: {interval or 'unmeasured'}"
    return replace(cell, text=significant(value, 3), title=title, detail=f"[{interval}]" if interval else "")


def _floor(book: Book, subject: Subject, time: str) -> tuple[Cell, Cell]:
    """The floor that the time which ranks is held against, and the gap over it."""
    bounds = book.bounds.get(subject)
    if bounds is None:
        gone = missing("the problem's formulas were not recorded")
        return gone, gone
    gap = next((g for g in bounds.gaps if g.time == time), None)
    bound = gap.floor if gap else bounds.floor
    if bound is None or bound.us is None:
        gone = missing("no roof of this device is known")
        return gone, gone
    roof = bound.roof.name if bound.roof else ""
    title = f"{bound.resource} bound by {roof}" + (f"\n{gap.note}" if gap and gap.note else "")
    floor = replace(number_cell(bound.us, "us", title, with_unit=False), detail=bound.resource)
    if gap is None:
        return floor, missing(book.why(time, subject))
    return floor, number_cell(gap.ratio, "1", f"{gap.time} {significant(gap.time_us)} µs over {title}")


def _spills(book: Book, variant: Variant) -> Cell:
    stores = book.static_cell("spill_store_bytes", variant, with_unit=False)
    loads = book.static_cell("spill_load_bytes", variant, with_unit=False)
    if not isinstance(stores.sort, float) or not isinstance(loads.sort, float):
        return stores if not isinstance(stores.sort, float) else loads
    title = f"stores: {stores.title}\nloads: {loads.title}"
    return Cell(f"{stores.text} + {loads.text}", title=title, sort=stores.sort + loads.sort, kind="number")


# --- the rest -----------------------------------------------------------------------------------


def _rest(wrong: int, unchecked: int) -> str:
    parts = [f"{wrong} wrong"] if wrong else []
    parts += [f"{unchecked} not checked"] if unchecked else []
    return ", ".join(parts) or "within their tolerance classes"


def _tiles(book: Book) -> list[dict[str, str]]:
    """The four answers in four boxes."""
    record, judgement = book.record, book.judgement
    counts = judgement.counts()
    checked = [o for o in record.outcomes if o.stage == "check"]
    right = sum(o.status == "ok" for o in checked)
    wrong = sum(o.status == "failed" for o in checked)
    value = f"{right} of {len(checked)} cases" if checked else UNMEASURED
    detail = _rest(wrong, len(checked) - right - wrong) if checked else "no case was checked"
    mark = "fail" if wrong else "pass" if checked and right == len(checked) else UNMEASURED
    tiles = [tile("Right?", value, detail, mark)]
    shape = book.shapes[0] if book.shapes else None
    fast = [
        (t, v.name)
        for v in (book.cases(shape) if shape else [])
        if shape and not v.is_peer and (t := record.facts.number(shape.time, Subject(v.name, shape=shape.name)))
    ]
    if fast and shape:
        best, name = min(fast)
        gain = record.facts.number("speedup_vs_baseline", Subject(name, shape=shape.name))
        behind = record.facts.number("speedup_vs_peer", Subject(name, shape=shape.name))
        parts = [f"{significant(gain, 3)} × as fast as {record.suite.baseline}"] if gain else []
        parts += [f"{significant(1 / behind, 3)} × the fastest peer's time"] if behind else []
        detail = name + (f": {', '.join(parts)}" if parts else "")
        tiles.append(tile(f"Fastest at {shape.name}, {shape.rank_by}", f"{significant(best)} µs", detail))
    else:
        tiles.append(tile("Fastest", UNMEASURED, "no times were recorded", UNMEASURED))
    value, mark = "all limits", "pass"
    if counts["fail"]:
        value, mark = f"{counts['fail']} failed", "fail"
    elif judgement.gaps:
        value, mark = f"{len(judgement.gaps)} unmeasured", UNMEASURED
    kept = f"{counts['pass']} pass, {counts['waived']} waived, {counts['unmeasured']} unmeasured"
    tiles.append(tile("Promises kept?", value, f"{kept}; gate exits {int(judgement.exit_code)}", mark))
    origin = (
        f"joined from run {record.joined[0].run}" if record.joined and not record.environment.gpu else "measured here"
    )
    detail = f"{record.gpu_arch}, {origin}" if record.gpu else "static facts only"
    return [*tiles, tile("GPU", record.gpu or "none", detail)]


def _machine(record: Record) -> list[tuple[str, str]]:
    e = record.environment
    unknown = "unknown"
    commit = (
        unknown if e.git_commit is None else e.git_commit[:12] + (", with uncommitted changes" if e.git_dirty else "")
    )
    rows = [
        ("run", record.id),
        ("recorded", record.created),
        ("command", record.command),
        ("source", commit),
        ("host", ", ".join(filter(None, (e.host, e.os, e.cpu)))),
        ("GPU", e.gpu or "none on this machine"),
    ]
    if e.gpu:
        clock = f"up to {e.gpu_sm_clock_mhz:,.0f} MHz" if e.gpu_sm_clock_mhz else f"clock {unknown}"
        memory = f"{e.gpu_memory_bytes / 1e9:,.0f} GB" if e.gpu_memory_bytes else f"memory {unknown}"
        l2 = f"{e.gpu_l2_bytes / 2**20:,.0f} MiB L2" if e.gpu_l2_bytes else f"L2 {unknown}"
        rows.append(("", f"{e.gpu_arch or unknown}, {e.gpu_sms or unknown} SMs, {clock}, {memory}, {l2}"))
        rows.append(("driver", f"{e.driver or unknown}, CUDA runtime {e.cuda_runtime or unknown}"))
    rows += [
        ("nvcc", f"{e.nvcc or 'absent'} (static budgets were set with {record.suite.nvcc})"),
        ("ncu", e.ncu or "absent"),
        ("torch", e.torch or "absent"),
        ("Python", e.python),
        ("harness", f"{e.harness}, record schema {record.schema_version}"),
    ]
    return rows + sorted(e.libraries.items())


def _builds(book: Book) -> list[dict[str, Any]]:
    """Builds that failed or are not meant to be, with the first line of the reason."""
    return [
        {"variant": a.variant, "arch": a.arch, "status": a.status, "message": a.message or "no message was kept"}
        for a in book.record.artifacts
        if a.status != "ok"
    ]


def _gaps(book: Book) -> list[dict[str, Any]]:
    """What is missing: cases by stage, state and reason, the most frequent reason first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    record = book.record
    for case, reason in record.stale.items():
        groups.setdefault(("all measured stages", "stale", reason), []).append(case)
    for o in record.outcomes:
        if o.status != "ok" and o.case not in record.stale:
            groups.setdefault((o.stage, o.status, o.reason), []).append(o.case)
    for plan in record.plans:
        if plan.error:
            groups.setdefault(("launch plan", "unsupported", plan.error), []).append(f"{plan.variant}/{plan.shape}")
    rank = {"failed": 0, "stale": 1, "skipped": 2, "unsupported": 3}
    found = [
        {"stage": stage, "status": status, "reason": reason, "cases": cases[:40], "more": max(0, len(cases) - 40),
         "count": len(cases)}
        for (stage, status, reason), cases in groups.items()
    ]  # fmt: skip
    return sorted(found, key=lambda g: (rank.get(str(g["status"]), 9), -int(str(g["count"]))))[:200]
