"""``flashcore explain CASE --brief``: a case in at most 2 KB, for programs that write kernels.

Every figure is that of the report. ``by`` names its source; a missing one has its cause instead.
"""

from __future__ import annotations

import json
from math import inf
from typing import Any

from flashcore.errors import UsageError
from flashcore.explain import heat, roofline
from flashcore.explain.advice import advice, unadvised
from flashcore.explain.limiter import WORTH, time_parts
from flashcore.explain.readings import Readings
from flashcore.gate.expand import Expansion, headroom
from flashcore.gate.formats import escaped
from flashcore.model import intervals
from flashcore.model.case import Case
from flashcore.model.cause import as_json, cause_text
from flashcore.model.causes import WrongAnswer
from flashcore.model.suite import Stage
from flashcore.model.text import visible
from flashcore.pipeline.judging import Judged
from flashcore.suites.load import select

MOST_BYTES = 2048
#: Bytes of a text and items of a list: a brief is shortened until it fits.
_STEPS = ((240, 4), (240, 3), (160, 3), (120, 3), (120, 2), (90, 2), (60, 2), (60, 1), (30, 1), (10, 1))
_Data = dict[str, Any]


def brief(judged: Judged, case: str) -> _Data:
    """Whether a case's variant is right; the case's time, its parts, first limiter, budgets and advice.

    Raises:
        UsageError: the run's suite has no such case.
    """
    record = judged.record
    name, _, at = case.partition("/")
    variants, [shape, *_] = select(record.suite, (name,), (at,) if at else ())
    if variants[0].name != name or not at:
        raise UsageError(f"{case}: expected VARIANT/SHAPE, such as {variants[0].name}/{shape.name}")
    readings, expansion = Readings(record), Expansion(record, [name])
    parts = time_parts(readings, name, at)

    def by(*names: str) -> list[str]:
        facts = (f for f in record.facts.of(name) if f.name in names and f.value is not None)
        return sorted({f.source.value for f in facts if f.subject.shape in (None, at)})

    def unmeasured(stage: Stage, fact: str) -> _Data:
        cause = expansion.outcome(name, at, stage)[1]
        return {
            "unmeasured": cause_text(cause) or readings.of(fact, name, at).why,
            "cause": cause.code if cause else None,
        }

    def right() -> _Data:
        checked = {s: expansion.outcome(name, s, "check") for s in record.suite.shapes}
        wrong = {s: readings.of("formula_flop", name, s).value for s in checked if checked[s][0] == "failed"}
        if not wrong:
            return {"answer": "right", "by": "check"} if checked[at][0] == "ok" else unmeasured("check", "max_error")
        smallest = min(wrong, key=lambda s: wrong[s] or inf)
        why = checked[smallest][1]
        elements = why.elements if isinstance(why, WrongAnswer) else None
        places = as_json(elements) if elements else None
        return {
            "answer": "wrong",
            "smallest_shape": smallest,
            "elements": places,
            "why": cause_text(why),
            "by": "check",
        }

    def time() -> _Data:
        taken = readings.time(shape.time, name, at)
        if taken.us is None:
            return unmeasured("bench", shape.time)
        interval = intervals.ratio(taken.samples, (1.0,), paired=False) if taken.samples else None
        gap = readings.gap(name, at)
        return {
            "mode": shape.rank_by,
            "us": taken.us,
            "interval": [interval.low, interval.high] if interval else "unmeasured: no samples",
            "floor": {"us": gap.floor_us, "ratio": gap.ratio, "of": gap.floor.resource} if gap else "unmeasured",
            "by": by(shape.time),
        }

    def first_limiter() -> _Data:
        if not (first := parts.limiter):
            return unmeasured("profile", "ncu_duration")
        here = (one for one in record.listings if one.subject.case == Case(name, at))
        lines = [x for one in here for x in heat.hottest(heat.in_order(one))]
        lines.sort(key=lambda x: (x.stall is None or not first.kind.endswith(x.stall[0]), -x.samples))
        line = next((f"{x.file}:{x.number}: {x.source}" for x in lines if x.number), "unmeasured: no warp samples")
        about = {"note": parts.note or parts.phase, "line": line, "by": by(*first.facts)}
        return {"is": first.text, "share": first.share, "evidence": first.evidence} | about

    def budgets() -> list[_Data]:
        limits, rows = {b.name: b for b in record.suite.budgets}, []
        for v in judged.judgement.of(name).verdicts:
            if v.budget in limits and v.subject.shape in (None, at):
                room = headroom(limits[v.budget], v.value)
                row: _Data = {"budget": v.budget, "of": str(v.subject), "is": v.status, "limit": v.limit}
                row |= {"unmeasured": v.reason} if v.value is None else {"value": v.value, "by": v.fact_source}
                key = v.status != "fail", v.severity != "limit", inf if room is None else room
                rows.append((key, row | {"headroom_percent": None if room is None else 100 * room}))
        worst: dict[str, _Data] = {}
        for _, row in sorted(rows, key=lambda x: x[0]):
            worst.setdefault(row["budget"], row)
        return list(worst.values())

    part = unadvised(readings, name, at)
    return {
        "case": case,
        "run": record.id,
        "gpu": record.gpu,
        "assumed_gpu": None if record.gpu else roofline.assumed_gpu(record),
        "right": right(),
        "time": time(),
        "parts": {p.kind: p.share for p in parts.parts if p.share >= WORTH} | {"by": by(shape.time, "issue_active")}
        if parts.timed
        else unmeasured("bench", shape.time),
        "limiter": first_limiter(),
        "budgets": budgets(),
        "advice": [
            {"change": x.action, "saves_at_most": x.gain, "bound": x.bound, "evidence": x.values}
            | {"by": by(*(fact for fact, *_ in x.evidence))}
            for x in advice(readings, name, at)
        ],
        "no_advice_for": {"part": part.kind, "percent": part.share} if part else None,
    }


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
