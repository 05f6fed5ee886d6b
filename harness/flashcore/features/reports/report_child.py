"""Reads one ``.ncu-rep`` with NVIDIA's ``ncu_report``, in a separate process: a damaged file may crash it.

``python -m flashcore.features.reports.report_child REPORT OUT`` writes the content as JSON: ``error``, or ``results``,
``sources``, ``code`` and ``reader``. It only checks whether the reader's answers are complete.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

_WORKLOADS = {0: "kernel", 1: "range", 2: "range", 3: "graph"}
#: Lists of other metrics, without measurements.
_LISTS = ("breakdown:", "group:", "regex:")
_LONGEST = 1 << 32  # bytes of a function's code, more than any has


def main(report: str, out: str) -> None:
    try:
        content = _read(report)
    except Exception as error:  # the reader's errors have no common class
        content = {"error": f"the reader failed: {str(error)[:300]}"}
    Path(out).write_bytes(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))


def _read(path: str) -> dict[str, Any]:
    import ncu_report

    context = ncu_report.load_report(path)
    results: list[dict[str, Any]] = []
    sources: dict[str, str] = {}
    code: dict[str, list[Any]] = {}
    for r in range(context.num_ranges()):
        profiled = context.range_by_idx(r)
        for i in range(profiled.num_actions()):
            action = profiled.action_by_idx(i)
            if action is None or not action.name() or not action.metric_names():
                return {"error": f"result {len(results)} has no name or no metric"}
            results.append(_result(action, len(results), code))
            sources |= {path: text for path, text in action.source_files().items() if text}
    version = importlib.metadata.version("ncu-report")
    return {"results": results, "sources": sources, "code": code, "reader": f"ncu-report {version}"}


def _result(action: Any, number: int, code: dict[str, list[Any]]) -> dict[str, Any]:
    metrics = {name: action.metric_by_name(name) for name in action.metric_names() if not name.startswith(_LISTS)}
    kernel, mangled = action.name(action.NameBase_DEMANGLED), action.name(action.NameBase_MANGLED)
    start = _start(metrics)
    # The same function may have been loaded twice with different code: its length distinguishes them.
    listed = f"{mangled} {metrics['inst_executed'].num_instances()}" if start is not None else ""
    if start is not None and listed not in code:
        code[listed] = _instructions(action, metrics["inst_executed"], start)
    return {
        "id": number,
        "kernel": kernel,
        "mangled": mangled,
        "workload": _WORKLOADS.get(action.workload_type(), "range"),
        "metrics": {name: _metric(metric, start) for name, metric in metrics.items() if metric is not None},
        "findings": [_finding(rule) for rule in action.rule_results_as_dicts()],
        "ranges": _ranges(action.nvtx_state()),
        "code": listed,
    }


def _start(metrics: dict[str, Any]) -> int | None:
    """The function's address: that of its first instruction, which is always executed and counted."""
    executed = metrics.get("inst_executed")
    if executed is None or not executed.num_instances() or not executed.has_correlation_ids():
        return None
    return min(_addresses(executed))


def _addresses(metric: Any) -> list[int]:
    ids = metric.correlation_ids()
    return [ids.as_uint64(i) for i in range(metric.num_instances())]


def _instructions(action: Any, executed: Any, start: int) -> list[Any]:
    rows = []
    for address in sorted(_addresses(executed)):
        line = action.source_info(address)
        place = (line.file_name(), line.line()) if line is not None else ("", 0)
        rows.append([address - start, (action.sass_by_pc(address) or "").strip(), *place])
    return rows


def _metric(metric: Any, start: int | None) -> list[Any]:
    """``[value, unit, instances]``. Instances are by opcode, or by an instruction's offset in the function if they are
    not 0. Instances of times and curves are left out."""
    return [metric.value(), metric.unit() or "", _instances(metric, start)]


def _instances(metric: Any, start: int | None) -> dict[str, Any]:
    count = metric.num_instances()
    if not count or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    if ids.kind(0) == ids.ValueKind_STRING:
        return {ids.as_string(i): metric.value(i) for i in range(count)} if metric.kind(0) != 2 else {}
    first = ids.as_uint64(0)
    if start is None or not start <= first < start + _LONGEST:
        return {}
    values = ((address, metric.value(i)) for i, address in enumerate(_addresses(metric)))
    return {hex(address - start): value for address, value in values if value}


def _finding(rule: dict[str, Any]) -> list[Any]:
    words = rule.get("rule_message") or {}
    estimate = rule.get("speedup_estimation") or {}
    message = ": ".join(part for part in (words.get("title"), words.get("message")) if part)
    scope = {1: "local", 2: "global"}.get(estimate.get("type", 0), "")
    return [rule["rule_identifier"], message, estimate.get("speedup"), scope]


def _ranges(state: Any) -> list[str]:
    if state is None:
        return []
    domains = map(state.domain_by_id, state.domains())
    return [f"{domain.name()}:{name}" for domain in domains for name in domain.push_pop_ranges()]


if __name__ == "__main__":
    main(*sys.argv[1:3])
