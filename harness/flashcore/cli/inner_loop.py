"""The four answers of the inner loop: is it correct, is it faster, what limits it, did it miss a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashcore.explain.advice import sentence
from flashcore.explain.answer import Answer, Correctness
from flashcore.explain.compare_records import compare
from flashcore.explain.comparison import Comparison
from flashcore.explain.readings import Readings
from flashcore.gate.answers import Answers
from flashcore.gate.wording import value_of
from flashcore.model.case import Case
from flashcore.model.record import Record
from flashcore.model.text import count, number
from flashcore.pipeline.judging import Judged


def answers(judged: Judged, previous: Record | None, variant: str) -> list[str]:
    """The four answers for one variant, compared with the last comparable run if there is one.

    Args:
        previous: an earlier record. If it is another GPU's or suite's, the answer says that it is not compared.
    """
    record = judged.record
    compared = None if previous is None else compare(previous, record)
    reason = compared.incomparable if compared else ""
    before = None if reason else compared
    shapes = [s for s in record.suite.shapes if any(f.subject.shape == s for f in record.facts.of(variant))]
    no_run = ": ".join(filter(None, ("no earlier run to compare with", reason)))
    against = f"against run {before.before.name}" if before else no_run
    answers = Answers(Readings(record), judged.judgement)
    all_answers = [answers.of(Case(variant, shape)) for shape in shapes]
    lines = [f"{variant} on {record.gpu or 'no GPU'} ({against})"]
    anywhere = Case(variant, next(iter(record.suite.shapes)))
    lines += _labelled("1 correct?  ", [_correct(answers.of(anywhere).correct)])
    lines += _labelled("2 faster?   ", [x for a in all_answers for x in _faster(before, a)])
    lines += _labelled("3 limited by?", [x for a in all_answers for x in _limits(a)])
    lines += _labelled("4 budgets?  ", list(_budgets(judged, before, variant)))
    return lines


def _labelled(label: str, answers: Sequence[str]) -> list[str]:
    rows = answers or ["unmeasured"]
    return [f"{label} {rows[0]}", *(f"{'':{len(label)}} {r}" for r in rows[1:])]


def _correct(correct: Correctness) -> str:
    judged = len(correct.wrong) + correct.correct
    if correct.wrong:
        named = "; ".join(f"{o.shape}: {o.reason}" for o in correct.wrong)
        return f"NO, wrong on {len(correct.wrong)} of {judged} shapes: {named}"
    if not judged:
        reasons = dict.fromkeys(o.reason for o in correct.unchecked if o.reason)
        return "unmeasured: " + ("; ".join(reasons) or "it was not checked")
    worst = "" if correct.error is None else f"; error at most {correct.error:.2f} × its tolerance class's"
    gaps = f"; not checked on {len(correct.unchecked)}" if correct.unchecked else ""
    return f"yes, on {count(judged, 'shape')}{worst}{gaps}"


def _faster(before: Comparison | None, answer: Answer) -> Iterator[str]:
    time, shape = answer.time, answer.case.shape
    if time.us is None:
        return
    text = f"{shape}: {number(round(time.us, 3), 'us')} {_words(time.mode)}" + f" ({time.note})" * bool(time.note)
    text += "".join(f", {number(round(us, 3), 'us')} {_words(mode)}" for mode, us in time.others.items())
    for row in before.cases if before else ():
        if row.subject.variant == answer.case.variant and shape in row.shapes:
            same = ", but it is the same code" if row.same_code else ""
            ratios = [c.speedup for c in row.changes if c.speedup and c.mode == time.mode]
            text += "".join(f"; {ratio.text} than before{same}" for ratio in ratios)
    yield text
    for role, speedup in time.over.items():
        pair = f" ({time.pair(role)})" if time.pair(role) else ""
        yield f"{'':{len(shape)}}  {speedup.than(f'the {role} {time.names[role]}')}{pair}"


def _words(regime: str) -> str:
    return regime.replace("_", " ")


def _limits(answer: Answer) -> Iterator[str]:
    parts, gap, missing = answer.parts, answer.time.gap, answer.uncounted
    limiter = parts.text + f" ({parts.note})" * bool(parts.note) if parts.limiter else ""
    limiter = limiter or (f"unmeasured: {missing.text}" if missing else "")
    yield f"{answer.case.shape}: " + "; ".join(filter(None, (gap.text if gap else "", limiter)))
    if part := answer.unadvised:
        yield f"{'':{len(answer.case.shape)}}  no advice for {part.brief}"
    for step in answer.steps[:1]:
        label = "other advice" if answer.unadvised else "next step"
        yield f"{'':{len(answer.case.shape)}}  {label}: {sentence(step)}"


def _budgets(judged: Judged, before: Comparison | None, variant: str) -> Iterator[str]:
    judgement = judged.judgement.of(variant)
    counts = judgement.counts()
    failed = judgement.failed
    others = f"{counts['pass']} passed, {counts['waived']} waived, {counts['unmeasured']} unmeasured"
    yield f"{len(failed)} FAILED; {others}" if failed else f"none failed; {others}"
    for v in failed:
        value, reason = value_of(v) and f"{value_of(v)}, ", f" ({v.reason.splitlines()[0]})" if v.reason else ""
        yield f"failed: {v.budget} on {v.subject}: {value}expected: {v.limit}{reason}"
    for row in before.code if before else ():
        if row.subject.variant == variant:
            yield f"changed: {row.line}"
