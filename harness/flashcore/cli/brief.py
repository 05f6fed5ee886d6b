"""``flashcore explain CASE --brief``: a case in at most 2 KB, for programs that write kernels.

Every figure is that of the report. ``by`` names its source; a missing one has its cause instead.
"""

from __future__ import annotations

import json
from typing import Any

from flashcore.errors import UsageError
from flashcore.explain import heat, roofline
from flashcore.explain.answer import Answer, Correctness, Duration
from flashcore.explain.limiter import WORTH
from flashcore.explain.verdict import Verdict
from flashcore.gate.formats import escaped
from flashcore.model.case import Case
from flashcore.model.cause import Cause, as_json, cause_text
from flashcore.model.record import Record
from flashcore.model.text import visible
from flashcore.pipeline.judging import Judged
from flashcore.suites.load import select

MOST_BYTES = 2048
#: Bytes of a text and items of a list: a brief is shortened until it fits.
_STEPS = ((240, 4), (240, 3), (160, 3), (120, 3), (120, 2), (90, 2), (60, 2), (60, 1), (30, 1), (10, 1))
_Data = dict[str, Any]


def brief(judged: Judged, case: str) -> _Data:
    """The answers for a case (:class:`flashcore.explain.answer.Answer`) as data.

    Raises:
        UsageError: the run's suite has no such case.
    """
    record = judged.record
    selected = Case.parse(case)
    name, at = selected.variant, selected.shape
    variants, [shape, *_] = select(record.suite, (name,), (at,))
    if variants[0].name != name:
        raise UsageError(f"{case}: expected VARIANT/SHAPE, such as {variants[0].name}/{shape.name}")
    answer = judged.answers.of(selected)
    parts, part = answer.parts, answer.unadvised

    def by(*names: str) -> list[str]:
        facts = (f for f in record.facts.of(name) if f.name in names and f.value is not None)
        return sorted({f.source.value for f in facts if f.subject.shape in (None, at)})

    shares = {p.kind: p.share for p in parts.parts if p.share >= WORTH} | {"by": by(shape.time, "issue_active")}
    return {
        "case": case,
        "run": record.id,
        "gpu": record.gpu,
        "assumed_gpu": None if record.gpu else roofline.assumed_gpu(record),
        "right": _correctness(answer.correct),
        "time": _time(answer.time) | ({"by": by(shape.time)} if answer.time.us else {}),
        "parts": shares if parts.timed else _unmeasured(answer.time.missing),
        "limiter": _limiter(record, answer) | ({"by": by(*parts.limiter.facts)} if parts.limiter else {}),
        "budgets": [_budget(result) for result in answer.nearest],
        "advice": [
            {"change": x.action, "saves_at_most": x.gain, "bound": x.bound, "evidence": x.values}
            | {"by": by(*(fact for fact, *_ in x.evidence))}
            for x in answer.steps
        ],
        "no_advice_for": {"part": part.kind, "percent": part.share} if part else None,
    }


def _unmeasured(cause: Cause | None) -> _Data:
    return {"unmeasured": cause_text(cause), "cause": cause.code if cause else None}


def _correctness(correct: Correctness) -> _Data:
    if correct.status == "unmeasured":
        return _unmeasured(correct.missing)
    if correct.status == "correct":
        return {"answer": "right", "by": "check"}
    elements = as_json(correct.elements) if correct.elements else None
    about = {"smallest_shape": correct.smallest, "elements": elements, "why": correct.wrong[0].reason}
    return {"answer": "wrong"} | about | {"by": "check"}


def _time(time: Duration) -> _Data:
    if time.us is None:
        return _unmeasured(time.missing)
    gap, interval = time.gap, time.interval
    return {
        "mode": time.mode,
        "us": time.us,
        "interval": [*interval] if interval else "unmeasured: no samples",
        "floor": {"us": gap.floor_us, "ratio": gap.ratio, "of": gap.floor.resource} if gap else "unmeasured",
        "over": {role: [time.names[role], ratio.text] for role, ratio in time.over.items()},
    }


def _limiter(record: Record, answer: Answer) -> _Data:
    """The limiter, and the source line where most warps stall for it."""
    parts = answer.parts
    if not (first := parts.limiter):
        return _unmeasured(answer.uncounted)
    here = (one for one in record.listings if one.subject.case == answer.case)
    lines = [x for one in here for x in heat.hottest(heat.in_order(one))]
    lines.sort(key=lambda x: (x.stall is None or not first.kind.endswith(x.stall[0]), -x.samples))
    line = next((f"{x.file}:{x.number}: {x.source}" for x in lines if x.number), "unmeasured: no warp samples")
    about = {"note": parts.note or parts.phase, "line": line}
    return {"is": first.text, "share": first.share, "evidence": first.evidence} | about


def _budget(result: Verdict) -> _Data:
    row: _Data = {"budget": result.budget, "of": str(result.subject), "is": result.status, "limit": result.limit}
    row |= {"unmeasured": result.reason} if result.value is None else {"value": result.value, "by": result.fact_source}
    return row | {"headroom_percent": None if result.headroom is None else 100 * result.headroom}


def fitted(data: _Data, *, as_json: bool) -> str:
    """The data as JSON or Markdown, shortened to :data:`MOST_BYTES`. Texts may come from a candidate's code, so control
    characters and Markdown's syntax are escaped."""
    for width, most in _STEPS:
        short = _shortened(data, width, most)
        lines = [f"- **{key}** {_inline(value)}" for key, value in short.items()]
        result = (json.dumps(short, ensure_ascii=False) if as_json else "\n".join(lines)) + "\n"
        if len(result.encode()) <= MOST_BYTES:
            break
    return result


def _shortened(value: Any, width: int, most: int) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(x, width, most) for key, x in value.items() if x not in (None, "", [])}
    if isinstance(value, list):
        more = [f"{len(value) - most} more"] if len(value) > most else []
        return [_shortened(x, width, most) for x in value[:most]] + more
    if isinstance(value, str):
        plain = " ".join(visible(value).split()).encode()
        return plain[:width].decode(errors="ignore") + "…" * (len(plain) > width)
    return float(f"{value:.4g}") + 0.0 if isinstance(value, float) else value


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_inline(x)}" for key, x in value.items())
    return "; ".join(map(_inline, value)) if isinstance(value, list) else escaped(str(value))
