"""What the terminal shows of a study."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from flashcore.cli.grid import grid as table
from flashcore.model.text import UNMEASURED, number
from flashcore.plugins.tune.finalists import Final
from flashcore.plugins.tune.study import Result
from flashcore.plugins.tune.summary import Summary, broken

_SHOWN = 12
_LONGEST = 100  # characters of a reason
_STATIC = ["registers", "smem, B", "spilled, B", "soft budgets broken", "config"]


def study_text(study: Summary) -> str:
    """All tables of a study but that of its finalists."""
    header = study.header
    title = (
        f"space {header.space.name} of suite {header.suite}: {header.sampler}, seed {header.seed}, "
        f"{header.gpu or 'no GPU'}, {header.arch}, {header.made_by}"
    )
    parts = _of_timed(study) if study.timed else [_static_only(study)] if study.results else []
    return "\n\n".join([title, _funnel(study), *parts])


def _funnel(study: Summary) -> str:
    """How many were rejected at each stage, with the two most frequent reasons."""
    rows = []
    for place, step in enumerate(study.funnel):
        frequent = step.rejections[:2] if place > 1 else ()  # conditions are in the manifest
        reasons = ", ".join(f"{count} × {_short(text)}" for count, text in frequent)
        rows.append([step.name, UNMEASURED if step.left is None else f"{step.left:,}", reasons])
    rows.append(["have another's machine code", f"{study.twins:,}", "measured once" if study.twins else ""])
    return table(["funnel", "left", "rejected"], rows)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _of_timed(study: Summary) -> Iterator[str]:
    grid, floor = study.grid, study.header.floor
    improvements = table(
        ["evaluations", "s", f"best, µs at {study.shape}", "point", "config"],
        [
            [str(one.evaluation), f"{one.result.seconds:.0f}", number(one.us), str(one.index), grid.text(one.index)]
            for one in study.improvements
        ],
    )
    yield improvements if floor is None else f"{improvements}\nfloor: {number(floor, 'us')}, by the datasheet"
    fastest = [[str(one.index), number(one.us), *_static(study, one.result)] for one in study.ranked[:_SHOWN]]
    yield table(["point", "µs", *_STATIC], fastest)
    yield _axes(study)
    if len(study.objective_names) > 1:
        rows = [[str(i), *map(number, study.objectives[i]), grid.text(i)] for i in study.front]
        yield table(["Pareto front", *study.objective_names, "config"], rows)


def _static_only(study: Summary) -> str:
    """Candidates that may be launched but spill or break a soft budget, the worst first."""
    launched = [r for r in study.launchable if not r.fell]
    worst = [r for r in launched if r.broken or r.facts.get("spill_store_bytes")]
    worst.sort(key=lambda r: (-r.facts.get("spill_store_bytes", 0.0), -max(r.broken.values(), default=0.0), r.index))
    count = len(launched) - len(worst)
    summary = f"{count:,} of {len(launched):,} that may be launched spill nothing and keep every budget"
    if not worst:
        return summary
    more = f"\nand {len(worst) - _SHOWN:,} more: --report FILE has all" if len(worst) > _SHOWN else ""
    rows = [[str(r.index), *_static(study, r)] for r in worst[:_SHOWN]]
    return f"{table(['point', *_STATIC], rows)}{more}\n{summary}"


def _static(study: Summary, result: Result) -> list[str]:
    facts = [number(result.facts.get(name)) for name in ("registers", "smem", "spill_store_bytes")]
    return [*facts, broken(result), study.grid.text(result.index)]


def _axes(study: Summary) -> str:
    """The fastest time with each value of an axis: the cost of giving up the best value."""
    rows = []
    for axis, fastest in study.fastest_by_value().items():
        times = [us for us, _ in fastest.values()]
        loss = f"{100 * (max(times) / min(times) - 1):.0f} %"
        shown = ", ".join(f"{value}: {number(us)} ({count})" for value, (us, count) in fastest.items())
        rows.append([axis, loss, number(statistics.median(times)), shown])
    return table(["axis", "worst value over best", "median, µs", "fastest with each value (timed)"], rows)


def finalists_text(study: Summary, finals: Sequence[Final]) -> str:
    """The finalists against the variant to beat."""
    heads = ["finalist", "shape", f"{finals[0].reference}, µs", "µs", "change", "noise threshold", "verdict", "config"]
    rows = [
        [
            str(f.index),
            f.shape,
            number(f.before_us),
            number(f.after_us),
            f.change,
            f.threshold,
            f.verdict,
            study.grid.text(f.index),
        ]
        for f in finals
    ]
    return table(heads, rows)
