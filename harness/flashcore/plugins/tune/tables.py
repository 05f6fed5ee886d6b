"""What the terminal shows of a study: the funnel, the best so far against evaluations, the fastest, and which soft
budget each of them broke, the Pareto front and how much each axis matters."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from flashcore.cli.text_tables import grid as table
from flashcore.model.text import UNMEASURED, number
from flashcore.plugins.tune import summary
from flashcore.plugins.tune.finalists import Final
from flashcore.plugins.tune.grid import Grid
from flashcore.plugins.tune.pareto import front
from flashcore.plugins.tune.samplers import objectives, values
from flashcore.plugins.tune.study import Header, Result
from flashcore.plugins.tune.summary import Timed

_SHOWN = 12
_MOST = 100  # characters of a reason


def whole(header: Header, results: Mapping[int, Result]) -> str:
    """All of it."""
    grid = Grid(header.space, header.constants)
    parts = [
        f"space {header.space.name} of suite {header.suite}: {header.sampler}, seed {header.seed}, "
        f"{header.gpu or 'no GPU'}, {header.arch}, {header.made_by}",
        _funnel(grid, results),
    ]
    shape = header.space.shapes[0]
    if timed := summary.timed(results, shape):
        parts += [_improvements(shape, timed, grid, header), _fastest(timed, grid), _axes(timed, grid)]
        wanted = objectives(header.space.shapes, header.space.objectives)
        if len(wanted) > 1:
            parts.append(_front(wanted, [one.result for one in timed], grid))
    elif results:
        parts.append(_broken(list(results.values()), grid))
    return "\n\n".join(parts)


def _funnel(grid: Grid, results: Mapping[int, Result]) -> str:
    """How many were rejected at each stage and why, most frequent first; a stage that none reached is unmeasured."""
    rows = []
    for step in summary.funnel(grid, results):
        often = ", ".join(f"{count} × {_short(text)}" for count, text in step.reasons[:2] if step.fell)
        rows.append([step.name, UNMEASURED if step.left is None else f"{step.left:,}", often])
    twins = sum(r.twin >= 0 for r in results.values())
    rows.append(["have another's machine code", f"{twins:,}", "measured once" if twins else ""])
    return table(["funnel", "left", "rejected"], rows)


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _improvements(shape: str, timed: Sequence[Timed], grid: Grid, header: Header) -> str:
    rows = [
        [str(one.evaluation), f"{one.result.seconds:.0f}", number(one.us), f"{one.result.index}",
         grid.text(one.result.index)]
        for one in summary.improvements(timed)
    ]  # fmt: skip
    text = table(["evaluations", "s", f"best, µs at {shape}", "point", "config"], rows)
    return text if header.floor is None else f"{text}\nfloor: {number(header.floor, 'us')}, by the datasheet"


def _fastest(timed: Sequence[Timed], grid: Grid) -> str:
    rows = []
    for one in sorted(timed, key=lambda one: one.us)[:_SHOWN]:
        index, *static = _static(one.result, grid)
        rows.append([index, number(one.us), *static])
    return table(["point", "µs", "registers", "smem, B", "spilled, B", "soft budgets broken", "config"], rows)


def _broken(results: Sequence[Result], grid: Grid) -> str:
    """Where nothing was timed: candidates that can be launched but spill, or break a soft budget; the worst first."""
    launched = [r for r in results if not r.fell]
    odd = [r for r in launched if r.broken or r.facts.get("spill_store_bytes")]
    odd.sort(key=lambda r: (-r.facts.get("spill_store_bytes", 0.0), -max(r.broken.values(), default=0.0), r.index))
    said = f"{len(launched) - len(odd):,} of {len(launched):,} that may be launched spill nothing and keep every budget"
    if not odd:
        return said
    more = f"\nand {len(odd) - _SHOWN:,} more: --report FILE has all" if len(odd) > _SHOWN else ""
    heads = ["point", "registers", "smem, B", "spilled, B", "soft budgets broken", "config"]
    return f"{table(heads, [_static(r, grid) for r in odd[:_SHOWN]])}{more}\n{said}"


def _static(r: Result, grid: Grid) -> list[str]:
    static = [number(r.facts.get(name)) for name in ("registers", "smem", "spill_store_bytes")]
    return [str(r.index), *static, summary.broken(r), grid.text(r.index)]


def _axes(timed: Sequence[Timed], grid: Grid) -> str:
    """The fastest time with each value of an axis: the cost of giving up the best value."""
    rows = []
    for axis, of in summary.fastest_with(grid, timed).items():
        best = [us for us, _ in of.values()]
        shown = ", ".join(f"{value}: {number(us)} ({count})" for value, (us, count) in of.items())
        rows.append([axis, f"{100 * (max(best) / min(best) - 1):.0f} %", number(statistics.median(best)), shown])
    return table(["axis", "worst value over best", "median, µs", "fastest with each value (timed)"], rows)


def _front(wanted: Sequence[str], timed: Sequence[Result], grid: Grid) -> str:
    rows = []
    for r in front([(r, v) for r in timed if (v := values(r, wanted)) is not None]):
        own = [number(r.times[n[5:]] if n.startswith("time:") else r.error if n == "error" else r.facts.get(n))
               for n in wanted]  # fmt: skip
        rows.append([str(r.index), *own, grid.text(r.index)])
    return table(["Pareto front", *wanted, "config"], rows)


def finals(header: Header, found: Sequence[Final]) -> str:
    """The finalists against the variant to beat."""
    grid, rows = Grid(header.space, header.constants), []
    for f in found:
        d = f.decision
        change = "" if d is None or d.change is None else f"{100 * d.change:+.2f} %"
        threshold = "" if d is None or d.critical is None else f"{100 * d.critical:.2f} %"
        fate = (d.outcome + (f": {d.reason}" if d.reason else "")) if d else f"not timed: {f.reason}"
        times = [number(f.before_us), number(f.after_us)]
        rows.append([str(f.index), f.shape, *times, change, threshold, fate, grid.text(f.index)])
    who = found[0].reference
    return table(["finalist", "shape", f"{who}, µs", "µs", "change", "noise threshold", "verdict", "config"], rows)
