"""Reads exported CSV pages of reports: raw, and details (also the long form of ``--metrics``).

Units are base or automatic. A page that is cut short, mixes two number formats, or has an unknown form is refused, with
the command that exports it correctly. ncu's errors and warnings beside a page are notes, or the reason of the refusal.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flashcore.errors import RecordError
from flashcore.features.reports.ncu_rep import EXPORT
from flashcore.machine import capabilities
from flashcore.machine.ncu import RAW_PAGE
from flashcore.model.catalogue import spec_of
from flashcore.model.causes import Caches
from flashcore.model.groups import grouped
from flashcore.readers.ncu import numerals, raw_page
from flashcore.readers.ncu.results import Finding, Metric, Report, Result

#: Section labels that name one metric in every version of ncu → that metric.
LABELS = {
    "Duration": "gpu__time_duration.sum",
    "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "One or More Eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Issued Instructions": "smsp__inst_issued.sum",
    "Block Size": "launch__block_size",
    "Grid Size": "launch__grid_size",
    "Cluster Size": "launch__cluster_size",
    "# SMs": "launch__sm_count",
    "Registers Per Thread": "launch__registers_per_thread",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
_BEGIN = re.compile(r'"?(ID|Process ID)"?\s*[,;]')
_CACHES = Caches(kept=None)  # a page lacks the options of the profiling
_READER = "flashcore's reader of CSV"
#: ncu's own lines, of which an early version told in another way that it profiled nothing.
_MESSAGE = re.compile(r"^==(?:ERROR==|WARNING==|PROF== No kernels)[^\r\n]*", re.MULTILINE)
_NOTHING_PROFILED = (
    "profile kernels that the command launches: ncu's filters, such as --kernel-name and --launch-skip, may leave out "
    "all of them, and those of its child processes need --target-processes all"
)
Row = Mapping[str, str]


def read(path: Path, text: str) -> Report:
    """Reads a page.

    Raises:
        RecordError: it cannot be read without guessing; names the command that exports it correctly.
    """
    results: Sequence[Result]
    messages = tuple(dict.fromkeys(_MESSAGE.findall(text)))[:10]
    try:
        lines = _lines(text)
        delimiter = ";" if re.match(r'("[^"]*"|[^",;]*);', lines[0]) else ","
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        rows = csv.reader(lines, strict=True, delimiter=delimiter)
        header = next(rows)
        if "Metric Value" in header:
            results = _long_results(header, filter(None, rows))
        else:
            table = raw_page.parse("".join(lines), domain=None, foreign=True)
            if table.damaged:
                raise _refused("whole rows", table.damaged[0])
            results = table.rows
        if not results:
            raise _refused("results", "none below the header")
    except (csv.Error, numerals.Undecided, raw_page.LayoutError) as error:
        why = _refused("CSV", f"damaged text ({error})") if isinstance(error, csv.Error) else error
        hint = EXPORT.format("REPORT.ncu-rep", RAW_PAGE, path.stem)
        if lacking := capabilities.reported_in(text):
            hint = lacking.hint
        elif "== No kernels" in text:
            hint = _NOTHING_PROFILED
        raise RecordError("; ncu: ".join((f"{path.name}: {why}", *messages)) + f"\n  hint: {hint}") from error
    numbers = sorted(result.id for result in results)
    gaps = [f"it has no result {n}" for n, number in enumerate(numbers) if number != n][:1]
    results = tuple(replace(r, caches=_CACHES) for r in results)
    return Report(path.name, results, reader=_READER, notes=(*messages, *gaps))


def _lines(text: str) -> list[str]:
    """The page's lines, from its header on."""
    lines = [line for line in io.StringIO(text) if not line.startswith("==")]
    start = next((i for i, line in enumerate(lines) if _BEGIN.match(line)), None)
    if start is None:
        raise _refused("a header of a raw or details page", "none")
    if odd := next((line for line in lines[:start] if len(re.findall("[\"'][,;][\"']", line)) > 8), None):
        raise _refused("no rows above the header", repr(odd[:40]))
    if lines[-1].endswith('"'):  # a whole field: the row's columns decide
        lines[-1] += "\n"
    if not lines[-1].endswith("\n"):
        raise _refused("whole lines", f"the last one cut short: {lines[-1][-40:]!r}")
    return lines[start:]


def _refused(expected: str, instead: str) -> raw_page.LayoutError:
    return raw_page.LayoutError(f"expected {expected}, found {instead}")


# --- details -------------------------------------------------------------------------------------


def _long_results(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[Result]:
    """A result per ID."""
    wanted = ["Kernel Name", "Metric Name", "Metric Unit", "ID"]
    if missing := [c for c in wanted if c not in header]:
        raise _refused(f"the columns {', '.join(wanted)}", f"none called {', '.join(missing)}")
    if len(set(header)) < len(header):
        raise _refused(f"the header's {len(header)} columns, each once", "a column twice")
    rows = []
    for n, line in enumerate(lines, 2):
        cells = _padded(line, header)
        if len(cells) != len(header):
            raise _refused(f"the header's {len(header)} columns, each once", f"{len(cells)} on row {n}")
        rows.append(dict(zip(header, cells, strict=True)))
    mark = numerals.decimal_mark(
        (row["Metric Value"], LABELS.get(row["Metric Name"], row["Metric Name"]), row["Metric Unit"]) for row in rows
    )
    results = [_long_result(launch, mark) for launch in grouped((row["ID"], row) for row in rows).values()]
    if results and not any(result.metrics for result in results):
        raise _refused("metrics by ncu's names, or labels that name one", "none of them")
    return results


def _padded(row: Sequence[str], header: Sequence[str]) -> Sequence[str]:
    """The row with the empty rule columns that the details page leaves out after a metric's value."""
    short = len(header) - len(row)
    value = header.index("Metric Value")
    metric = len(row) > value and any(row[value - 2 : value + 1]) and not any(row[value + 1 :])
    return [*row, *[""] * short] if short > 0 and metric else row


def _long_result(rows: Sequence[Row], mark: str) -> Result:
    """The result of one ID's rows: each is a metric, or a rule's finding."""
    metrics: dict[str, Metric] = {}
    findings = []
    for row in rows:
        name = row["Metric Name"]
        name = LABELS.get(name, name if spec_of(name) is not None else "")
        metric = raw_page.cell(row["Metric Value"], row["Metric Unit"].strip(), mark)
        earlier = metrics.setdefault(name, metric).value
        if metric.value is None:
            metrics[name] = metric
        elif name and earlier not in (None, metric.value):
            raise _refused(f"one value of {name} for a result", f"{earlier} and {metric.value}")
        if row.get("Rule Name"):
            estimate = numerals.number(row.get("Estimated Speedup", ""), mark)
            scope = row.get("Estimated Speedup Type", "").lower()
            findings.append(Finding(row["Rule Name"], row.get("Rule Description", ""), estimate, scope))
    metrics.pop("", None)
    result = raw_page.result_of(rows[0], metrics)
    if result is None:
        raise _refused("a result", raw_page.unreadable(rows[0]))
    return replace(result, findings=tuple(findings))
