"""A study's results: a data frame, a plot, and the command's tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.visualization import plot_optimization_history

from flashcore.cli import comparison
from flashcore.cli.grid import grid as text_table
from flashcore.explain.comparison import Comparison
from flashcore.model.text import number
from flashcore_tune.search import STATIC, load, outcomes, ranked
from flashcore_tune.space import Grid

if TYPE_CHECKING:
    import optuna
    import pandas as pd

_SHOWN = 12


def frame(study: optuna.Study | Path | str) -> pd.DataFrame:
    """A row per candidate, in the order of the search: its ``point``, config, ``rejected`` and ``reason``, time at each
    shape (``mission [us]``), static facts and missed soft budgets. A value that was not measured is missing.

    Args:
        study: a study, or its folder.

    Raises:
        UsageError: there is no study in the folder.
    """
    import pandas as pd

    rows = []
    for trial in (load(study) if isinstance(study, (Path, str)) else study).get_trials(deepcopy=False):
        if "point" in trial.user_attrs and trial.state.is_finished():
            row = dict(trial.user_attrs)
            times, facts = row.pop("times"), row.pop("facts")
            row["missed"] = ", ".join(row["missed"])
            rows.append({**row, **{f"{shape} [us]": us for shape, us in times.items()}, **facts})
    return pd.DataFrame(rows)


def plot(study: optuna.Study, shape: str, file: Path) -> None:
    """Writes the time of each candidate at the first shape, and the best so far, as a page that works offline."""
    figure = plot_optimization_history(study, target=lambda t: t.values[0], target_name=f"time at {shape}, µs")
    figure.write_html(file)


def tables(study: optuna.Study, grid: Grid, finals: Comparison | None) -> str:
    """How many candidates each step rejected, the fastest ones, and the finalists."""
    found, shape = outcomes(study), grid.space.shapes[0]
    rejected = Counter(o.rejected for o in found.values() if o.rejected)
    reasons = Counter(f"{o.rejected}: {o.reason}" for o in found.values() if o.rejected)
    steps = ", ".join(f"{count:,} rejected at {step}" for step, count in rejected.items())
    lines = [
        f"{len(grid):,} points, {len(grid.feasible):,} meet the conditions; {len(found):,} built"
        + (f", {steps}" if steps else ""),
        *(f"  {count:,} × {reason[:100]}" for reason, count in reasons.most_common(3)),
    ]
    order = ranked(found, shape)
    passed = order or [i for i, o in found.items() if o.rejected not in STATIC]
    heads = (
        "point",
        *(f"{s}, µs" for s in grid.space.shapes),
        "registers",
        "spilled, B",
        "soft budgets missed",
        "config",
    )
    rows = [
        [
            str(i),
            *(number(found[i].times.get(s)) for s in grid.space.shapes),
            *(number(found[i].facts.get(n)) for n in ("registers", "spill_store_bytes")),
            ", ".join(found[i].missed) or "none",
            grid.text(i),
        ]
        for i in passed[:_SHOWN]
    ]
    lines += ["", text_table(heads, rows)] if rows else []
    lines += ["", comparison.as_text(finals, every=True)] if finals else []
    return "\n".join(lines)
