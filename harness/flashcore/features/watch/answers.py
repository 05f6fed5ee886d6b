"""An answer to one of the four questions, and the lines that people read."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from flashcore.explain.advice import as_data, sentence
from flashcore.explain.answer import Answer
from flashcore.gate.judge import Judgement
from flashcore.gate.wording import sentence as verdict_sentence
from flashcore.gate.wording import summary
from flashcore.model.intervals import levels, ratio
from flashcore.model.record import CaseOutcome
from flashcore.model.text import bracketed, number

Question = Literal["budgets", "right", "faster", "limits"]
Status = Literal["ok", "failed", "unmeasured"]


class Content(NamedTuple):
    """An answer: for people as lines, for programs as data."""

    status: Status
    lines: Sequence[str]
    data: Mapping[str, Any] = {}


def of_budgets(judgement: Judgement) -> Content:
    """The limits of a variant: those that fail, and how many are met."""
    counts, failed = dict(judgement.counts()), judgement.failed
    status: Status = "failed" if failed else "ok" if counts.get("pass") else "unmeasured"
    lines = [verdict_sentence(v) for v in failed] or [summary(judgement)]
    return Content(status, lines, {"counts": counts, "failed": [str(v.budget) for v in failed]})


def of_check(outcomes: Sequence[CaseOutcome]) -> Content:
    """Whether the results are right on every shape that the variant supports; unmeasured if one was not checked."""
    right = [o.shape for o in outcomes if o.status == "ok"]
    wrong = [f"{o.shape}: {o.reason}" for o in outcomes if o.status == "failed"]
    gaps = [f"{o.shape}: not checked: {o.reason}" for o in outcomes if o.status in ("skipped", "unsupported")]
    complete = right and all(o.status != "skipped" for o in outcomes)
    status: Status = "failed" if wrong else "ok" if complete else "unmeasured"
    lines = wrong or [f"right on {', '.join(right)}" for _ in right[:1]]
    return Content(status, [*lines, *gaps], {"wrong": wrong, "unchecked": gaps})


def of_times(regime: str, samples: Sequence[float], others: Mapping[str, Sequence[float]]) -> Content:
    """A build's time, and how much faster it is than other builds and the fastest reference, timed in turns with them.

    Args:
        samples: us per call, one from each round.
        others: the same of what it is compared with, by its name for people.
    """
    ratios = {name: ratio(times, samples) for name, times in others.items()}
    p50 = statistics.median(samples)
    alternates = f" ({x.text})" if (x := levels(samples)) else ""
    lines = [f"{number(round(p50, 3), 'us')} {regime.replace('_', ' ')}{alternates}"]
    lines += [f"{r.value:.3f} × the speed of {name} {bracketed(r.low, r.high)}" for name, r in ratios.items()]
    data = {"us": p50, "regime": regime, "samples": len(samples), "against": {n: asdict(r) for n, r in ratios.items()}}
    return Content("ok", lines, data)


def of_limits(answer: Answer) -> Content:
    """The case's time over its floor, what takes the time, and the next step."""
    parts, gap, first = answer.parts, answer.time.gap, answer.steps[:1]
    lines = [*filter(None, (gap.text if gap else "", parts.text)), *map(sentence, first)]
    if answer.unadvised:
        lines.append(f"no advice for {answer.unadvised.brief}")
    data = {
        "limiters": [{"kind": x.kind, "share": x.share, "evidence": x.evidence} for x in parts.limiters],
        "advice": [as_data(x) for x in first],
    }
    return Content("ok" if parts.limiter or gap else "unmeasured", lines or ["unmeasured"], data)
