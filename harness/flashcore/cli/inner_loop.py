"""The four answers of the inner loop: is it correct, is it faster, what limits it, did it miss a budget."""

from __future__ import annotations

from collections.abc import Sequence

from flashcore.explain.advice import sentence
from flashcore.explain.answer import Answer, Correctness, Duration
from flashcore.explain.compare_records import compare
from flashcore.explain.comparison import Comparison
from flashcore.explain.verdict import Verdicts
from flashcore.gate.wording import sentence as verdict_sentence
from flashcore.model.case import Case
from flashcore.model.cause import cause_text
from flashcore.model.record import Record
from flashcore.model.text import as_words, count, number
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
    answers = judged.answers
    all_answers = [answers.of(Case(variant, shape)) for shape in shapes]
    lines = [f"{variant} on {record.gpu or 'no GPU'} ({against})"]
    anywhere = Case(variant, next(iter(record.suite.shapes)))
    lines += _labelled("1 correct?  ", [correct(answers.of(anywhere).correct)])
    timed = [a for a in all_answers if a.time.us is not None]
    lines += _labelled("2 faster?   ", [x for a in timed for x in _at(a, faster(a.time, _than_before(before, a)))])
    lines += _labelled("3 limited by?", [x for a in all_answers for x in _at(a, limits(a))])
    code = [row for row in before.code if row.subject.variant == variant] if before else []
    changed = [f"changed: {row.line}" for row in code]
    lines += _labelled("4 budgets?  ", [*budgets(answers.budgets(variant)), *changed])
    return lines


def _labelled(label: str, answers: Sequence[str]) -> list[str]:
    rows = answers or ["unmeasured"]
    return [f"{label} {rows[0]}", *(f"{'':{len(label)}} {r}" for r in rows[1:])]


def _at(answer: Answer, lines: Sequence[str]) -> list[str]:
    """Lines about a case, the first with its shape."""
    shape = answer.case.shape
    return [f"{shape}: {lines[0]}", *(f"{'':{len(shape)}}  {line}" for line in lines[1:])]


def _than_before(before: Comparison | None, answer: Answer) -> str:
    """How much faster a case is than in an earlier run."""
    text = ""
    for row in before.cases if before else ():
        if row.subject.variant == answer.case.variant and answer.case.shape in row.shapes:
            same = ", but it is the same code" if row.same_code else ""
            ratios = [c.speedup for c in row.changes if c.speedup and c.mode == answer.time.mode]
            text += "".join(f"; {ratio.text} than before{same}" for ratio in ratios)
    return text


# --- the lines of one answer, for the terminal and for watch ------------------------------------------


def correct(correct: Correctness) -> str:
    """Whether a variant's answers are correct."""
    judged = len(correct.wrong) + correct.correct
    if correct.wrong:
        named = "; ".join(f"{o.shape}: {o.reason}" for o in correct.wrong)
        return f"NO, wrong on {len(correct.wrong)} of {judged} shapes: {named}"
    if not judged:
        reasons = dict.fromkeys(o.reason for o in correct.unchecked if o.reason)
        return "unmeasured: " + ("; ".join(reasons) or "it was not checked")
    worst = (
        ""
        if correct.error is None
        else f"; error at most {correct.error:.2f} × the rounding error of its tolerance class"
    )
    gaps = f"; not checked on {len(correct.unchecked)}" if correct.unchecked else ""
    return f"yes, on {count(judged, 'shape')}{worst}{gaps}"


def faster(time: Duration, than_before: str = "") -> list[str]:
    """A case's times, and how much faster it is than what it is compared with."""
    if time.us is None:
        return [f"unmeasured: {cause_text(time.missing)}"]
    text = f"{number(round(time.us, 3), 'us')} {as_words(time.mode)}" + f" ({time.note})" * bool(time.note)
    text += "".join(f", {number(round(us, 3), 'us')} {as_words(mode)}" for mode, us in time.others.items())
    pairs = {role: f" ({time.pair(role)})" if time.pair(role) else "" for role in time.over}
    return [text + than_before, *(ratio.than(time.other(role)) + pairs[role] for role, ratio in time.over.items())]


def limits(answer: Answer) -> list[str]:
    """A case's time over its floor, what takes the time, and the next step."""
    parts, gap, missing = answer.parts, answer.time.gap, answer.uncounted
    limiter = parts.text + f" ({parts.note})" * bool(parts.note) if parts.limiter else ""
    limiter = limiter or (f"unmeasured: {cause_text(missing)}" if missing else "")
    lines = ["; ".join(filter(None, (gap.text if gap else "", limiter)))]
    lines += [f"no advice for {answer.unadvised.brief}"] if answer.unadvised else []
    label = "other advice" if answer.unadvised else "next step"
    return lines + [f"{label}: {sentence(step)}" for step in answer.steps[:1]]


def budgets(budgets: Verdicts) -> list[str]:
    """How many of a variant's limits failed, and each of them."""
    counts, failed = budgets.counts(), budgets.failed
    others = f"{counts['pass']} passed, {counts['waived']} waived, {counts['unmeasured']} unmeasured"
    first = f"{len(failed)} FAILED; {others}" if failed else f"none failed; {others}"
    return [first, *(f"failed: {v.budget} on {verdict_sentence(v).splitlines()[0]}" for v in failed)]
