"""Answers the four questions of the inner loop: is it right, is it faster, what limits it, did it miss a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flashcore.explain import compare_records, roofline
from flashcore.explain.comparison import Change
from flashcore.explain.readings import Readings
from flashcore.explain.rows import Row
from flashcore.gate.wording import value_of
from flashcore.model import intervals
from flashcore.model.catalogue import STALL_REASONS
from flashcore.model.cause import cause_text
from flashcore.model.record import Record, Subject
from flashcore.model.suite import REGIMES
from flashcore.model.text import number
from flashcore.pipeline.judging import Judged


def answers(judged: Judged, previous: Record | None, variant: str) -> list[str]:
    """The four answers for one variant, compared with the last comparable run if there is one.

    Args:
        previous: an earlier record. If it is another GPU's or suite's, the answer says that it is not compared.
    """
    record = judged.record
    reason = "" if previous is None else compare_records.comparable(previous, record)
    before = None if reason else previous
    shapes = [s for s in record.suite.shapes if any(f.subject.shape == s for f in record.facts.of(variant))]
    no_run = ": ".join(filter(None, ("no earlier run to compare with", reason)))
    against = f"against run {before.id}" if before else no_run
    gaps = {c.subject: c.gaps for c in roofline.case_bounds(record)}
    lines = [f"{variant} on {record.gpu or 'no GPU'} ({against})", f"1 right?     {_right(record, variant)}"]
    lines += _labelled("2 faster?   ", [x for s in shapes for x in _faster(record, before, variant, s)])
    lines += _labelled("3 limited by?", [x for s in shapes for x in _limits(record, gaps, variant, s)])
    lines += _labelled("4 budgets?  ", list(_budgets(judged, before, variant)))
    return lines


def _labelled(label: str, answers: Sequence[str]) -> list[str]:
    rows = answers or ["unmeasured"]
    return [f"{label} {rows[0]}", *(f"{'':{len(label)}} {r}" for r in rows[1:])]


def _right(record: Record, variant: str) -> str:
    outcomes = [o for o in record.outcomes if o.variant == variant and o.stage == "check"]
    judged = [o for o in outcomes if o.status in ("ok", "failed")]
    wrong = [o for o in judged if o.status == "failed"]
    if wrong:
        named = "; ".join(f"{o.shape}: {o.reason}" for o in wrong)
        return f"NO, wrong on {len(wrong)} of {len(judged)} shapes: {named}"
    if not judged:
        reasons = dict.fromkeys(o.reason for o in outcomes if o.reason)
        return "unmeasured: " + ("; ".join(reasons) or "it was not checked")
    errors = [f.number for f in record.facts.of(variant) if f.name == "max_error_over_class" and f.number is not None]
    worst = f"; error at most {max(errors):.2f} × its tolerance class's" if errors else ""
    gaps = f"; not checked on {len(outcomes) - len(judged)}" if len(judged) < len(outcomes) else ""
    return f"yes, on {len(judged)} shapes{worst}{gaps}"


def _faster(record: Record, before: Record | None, variant: str, shape: str) -> Iterator[str]:
    subject = Subject(variant, shape=shape)
    regime = record.suite.shapes[shape].rank_by
    now = record.time(subject, regime)
    if now.us is None:
        return
    text = f"{shape}: {number(round(now.us, 3), 'us')} {_words(regime)}"
    if levels := intervals.levels(now.samples):
        text += f" ({levels.text})"
    for other in (r for r in REGIMES if r != regime):
        if (time := record.facts.number(f"{other}_p50", subject)) is not None:
            text += f", {number(round(time, 3), 'us')} {_words(other)}"
    if before and (change := _before(before, record, subject, regime)) and change.speedup:
        same = compare_records.same_code(before, subject, record, subject)
        text += f"; {change.speedup.text} than before{', but it is the same code' if same else ''}"
    yield text
    row = Row(Readings(record), [record.suite.shapes[shape]])
    parent = record.suite.variants[variant].parent if variant in record.suite.variants else None
    if of := row.over(variant, parent):
        yield f"{'':{len(shape)}}  {of.text} than its parent {parent}"
    for over, name in ((record.suite.baseline, "baseline"), (row.reference, "fastest library")):
        if of := row.over(variant, over):
            yield f"{'':{len(shape)}}  {of.value:.2f}× the speed of the {name} {of.interval}"


def _before(before: Record, record: Record, subject: Subject, mode: str) -> Change | None:
    """The change of a time since an earlier record, at an equal shape."""
    if not compare_records.same_shape(before, record, subject.shape or ""):
        return None
    return compare_records.time_change(before.time(subject, mode), record.time(subject, mode))


def _words(regime: str) -> str:
    return regime.replace("_", " ")


def _limits(record: Record, gaps: Mapping[Subject, Sequence[roofline.Gap]], variant: str, shape: str) -> Iterator[str]:
    subject = Subject(variant, shape=shape)
    stale = record.stale.get(subject.case)
    if stale is not None:
        yield f"{shape}: unmeasured: {cause_text(stale)}"
        return
    parts = [f"{_words(g.time.removesuffix('_p50'))} {g.text}" for g in gaps.get(subject, ())[:1]]
    stalls = ((record.facts.number(f"stall_share_{r}", subject), r) for r in STALL_REASONS if r != "selected")
    share, reason = max(((s, r) for s, r in stalls if s is not None), key=lambda stall: stall[0], default=(None, ""))
    if share is not None:
        parts.append(f"stalls most on {reason} ({share:.0f} %)")
    for name, text in (("tensor_active", "tensor pipe active"), ("achieved_occupancy", "occupancy achieved")):
        value = record.facts.number(name, subject)
        if value is not None:
            parts.append(f"{text} {value:.1f} %")
    if parts:
        yield f"{shape}: " + "; ".join(parts)


def _budgets(judged: Judged, before: Record | None, variant: str) -> Iterator[str]:
    record, judgement = judged.record, judged.judgement.of(variant)
    counts = judgement.counts()
    failed = judgement.failed
    others = f"{counts['pass']} passed, {counts['waived']} waived, {counts['unmeasured']} unmeasured"
    yield f"{len(failed)} FAILED; {others}" if failed else f"none failed; {others}"
    for v in failed:
        value, reason = value_of(v) and f"{value_of(v)}, ", f" ({v.reason.splitlines()[0]})" if v.reason else ""
        yield f"failed: {v.budget} on {v.subject}: {value}limit {v.limit}{reason}"
    if before is not None:
        # Facts with an arch are static and cover every shape. Others are compared only on shapes that both runs have.
        cases = [{f.subject.shape for f in r.facts.of(variant) if f.subject.arch is None} for r in (before, record)]
        for c in compare_records.changes(before, record):
            if c.subject.variant == variant and (c.subject.arch or all(c.subject.shape in shapes for shapes in cases)):
                yield f"changed: {c.subject} {c.fact} {c.text} ({c.outcome})"
