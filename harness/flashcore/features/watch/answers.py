"""The answers to the four questions as events: for people the lines of the terminal, for programs data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from flashcore.cli import inner_loop
from flashcore.explain.advice import as_data
from flashcore.explain.answer import Answer, Correctness, Duration
from flashcore.explain.verdict import Verdicts

Question = Literal["budgets", "right", "faster", "limits"]
AnswerStatus = Literal["ok", "failed", "unmeasured"]


class Content(NamedTuple):
    """An answer: for people as lines, for programs as data."""

    status: AnswerStatus
    lines: Sequence[str]
    data: Mapping[str, Any] = {}


def of_budgets(budgets: Verdicts) -> Content:
    """The limits of a variant: those that fail, and how many are met."""
    counts, failed = budgets.counts(), budgets.failed
    status: AnswerStatus = "failed" if failed else "ok" if counts["pass"] else "unmeasured"
    return Content(status, inner_loop.budgets(budgets), {"counts": {**counts}, "failed": [v.budget for v in failed]})


def of_check(correct: Correctness) -> Content:
    """Whether the results are correct on every shape that the variant supports."""
    statuses: Mapping[str, AnswerStatus] = {"correct": "ok", "wrong": "failed"}
    gaps = [f"{o.shape}: not checked: {o.reason}" for o in correct.unchecked]
    data = {"wrong": [f"{o.shape}: {o.reason}" for o in correct.wrong], "unchecked": gaps}
    return Content(statuses.get(correct.everywhere, "unmeasured"), [inner_loop.correct(correct), *gaps], data)


def of_times(time: Duration) -> Content:
    """A build's time, and how much faster it is than what it was timed in turns with."""
    lines = inner_loop.faster(time)
    if time.us is None:
        return Content("unmeasured", lines)
    against = {
        time.names[role] or time.other(role): {"value": ratio.value, "low": ratio.low, "high": ratio.high}
        for role, ratio in time.over.items()
    }
    data = {"us": time.us, "mode": time.mode, "samples": len(time.samples), "against": against}
    return Content("ok", lines, data)


def of_limits(answer: Answer) -> Content:
    """The case's time over its floor, what takes the time, and the next step."""
    limiters = [{"kind": x.kind, "share": x.share, "evidence": x.evidence} for x in answer.parts.limiters]
    data = {"limiters": limiters, "advice": [as_data(x) for x in answer.steps[:1]]}
    is_known = answer.parts.limiter or answer.time.gap
    return Content("ok" if is_known else "unmeasured", inner_loop.limits(answer), data)
