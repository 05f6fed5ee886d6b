"""A report of ncu, read without this package."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_by_itself(path: Path) -> Iterator[dict[str, tuple[Any, str]]]:
    """Every value and unit of a report, result by result, straight from NVIDIA's reader."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ncu_report
    context = ncu_report.load_report(str(path))
    for r in range(context.num_ranges()):
        result = context.range_by_idx(r)
        for i in range(result.num_actions()):
            action = result.action_by_idx(i)
            metrics = {name: action.metric_by_name(name) for name in action.metric_names()}
            yield {name: (m.value(), m.unit()) for name, m in metrics.items() if ":" not in name}
