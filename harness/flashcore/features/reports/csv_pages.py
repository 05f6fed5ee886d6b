"""Reads exported CSV pages of reports: raw, details (also the long form of ``--metrics``), summary and source.

Units are base or automatic. A page that is cut short, mixes two number formats, or has an unknown form is refused, with
the command that exports it correctly. ncu's errors and warnings beside a page are notes, or the reason of the refusal.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flashcore.errors import RecordError
from flashcore.features.reports.ncu_rep import EXPORT
from flashcore.machine import capabilities
from flashcore.machine.ncu import RAW_PAGE
from flashcore.model.catalogue import spec_of
from flashcore.model.causes import Caches
from flashcore.model.groups import grouped
from flashcore.model.record import CountedInstruction
from flashcore.readers.ncu import numerals, raw_page
from flashcore.readers.ncu.results import BY_ADDRESS, Finding, Metric, Report, Result

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
#: Stall reasons as the source page's columns abbreviate them.
_REASONS = {
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instruction",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
}
#: Other columns of the source page → their names in a listing; all others are ignored.
_COUNTS = {
    "# Samples": "samples",
    "Instructions Executed": "executed",
    "L1 Wavefronts Shared": "wavefronts",
    "L1 Wavefronts Shared Ideal": "wavefronts_ideal",
}
_BEGIN = re.compile(r'"?(ID|Process ID|File Path|Function Name|Kernel Name)"?\s*[,;]')
_LINE = re.compile(r"[0-9]{1,6}")
_SOURCE_BEGINS = ("File Path", "Function Name", "Kernel Name")
_CACHES = Caches(kept=None)  # a page lacks the options of the profiling
_READER = "flashcore's reader of CSV"
#: ncu's own lines, of which an early version told in another way that it profiled nothing.
_MESSAGE = re.compile(r"^==(?:ERROR==|WARNING==|PROF== No kernels)[^\r\n]*", re.MULTILINE)
_NOTHING_PROFILED = (
    "profile kernels that the command launches: ncu's filters, such as --kernel-name and --launch-skip, may leave out "
    "all of them, and those of its child processes need --target-processes all"
)
_SOURCE = "--page source --print-source cuda,sass"
PageRow = Mapping[str, str]


def read(path: Path, text: str) -> Report:
    """Reads a page.

    Raises:
        RecordError: it cannot be read without guessing; names the command that exports it correctly.
    """
    exported, sources, code = RAW_PAGE, dict[str, str](), dict[str, tuple[CountedInstruction, ...]]()
    results: Sequence[Result]
    messages = tuple(dict.fromkeys(_MESSAGE.findall(text)))[:10]
    try:
        lines = _lines(text)
        delimiter = ";" if re.match(r'("[^"]*"|[^",;]*);', lines[0]) else ","
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        rows = csv.reader(lines, strict=True, delimiter=delimiter)
        header = next(rows)
        if header[0] in _SOURCE_BEGINS:
            exported = _SOURCE
            launches = _launches([header, *filter(None, rows)])
            sources = {block.file: block.text for launch in launches for block in launch if block.file}
            results = _source_results(launches, code)
        elif "Metric Value" in header or "Invocations" in header:
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
        hint = EXPORT.format("REPORT.ncu-rep", exported, path.stem)
        if lacking := capabilities.reported_in(text):
            hint = lacking.hint
        elif "== No kernels" in text:
            hint = _NOTHING_PROFILED
        raise RecordError("; ncu: ".join((f"{path.name}: {why}", *messages)) + f"\n  hint: {hint}") from error
    numbers = sorted(result.id for result in results)
    gaps = [f"it has no result {n}" for n, number in enumerate(numbers) if number != n][:1]
    results = tuple(replace(r, caches=_CACHES) for r in results)
    return Report(path.name, results, sources, code, _READER, notes=(*messages, *gaps))


def _lines(text: str) -> list[str]:
    """The page's lines, from its header on."""
    lines = [line for line in io.StringIO(text) if not line.startswith("==")]
    start = next((i for i, line in enumerate(lines) if _BEGIN.match(line)), None)
    if start is None:
        raise _refused("a header with Kernel Name, or with File Path and Function Name", "none")
    if odd := next((line for line in lines[:start] if len(re.findall("[\"'][,;][\"']", line)) > 8), None):
        raise _refused("no rows above the header", repr(odd[:40]))
    if lines[-1].endswith('"'):  # a whole field: the row's columns decide
        lines[-1] += "\n"
    if not lines[-1].endswith("\n"):
        raise _refused("whole lines", f"the last one cut short: {lines[-1][-40:]!r}")
    return lines[start:]


def _refused(expected: str, instead: str) -> raw_page.LayoutError:
    return raw_page.LayoutError(f"expected {expected}, found {instead}")


# --- details, summary -----------------------------------------------------------------------------


def _long_results(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[Result]:
    """A result per ID; of a summary, per kernel and configuration."""
    summary = "Invocations" in header
    wanted = ["Kernel Name", "Metric Name", "Metric Unit", *([] if summary else ["ID"])]
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
        (row[c], LABELS.get(row["Metric Name"], row["Metric Name"]), row["Metric Unit"])
        for row in rows
        for c in ("Metric Value", "Minimum", "Average")
        if c in row
    )
    keys = ("Kernel Name", "Block Size", "Grid Size") if summary else ("ID",)
    groups = grouped((tuple(row.get(k) for k in keys), row) for row in rows)
    results = [_long_result(n, group, mark) for n, group in enumerate(groups.values())]
    if results and not any(result.metrics for result in results):
        raise _refused("metrics by ncu's names, or labels that name one", "none of them")
    return results


def _padded(row: Sequence[str], header: Sequence[str]) -> Sequence[str]:
    """The row with the empty rule columns that the details page leaves out after a metric's value."""
    short = len(header) - len(row)
    value = header.index("Metric Value") if "Metric Value" in header else len(header)
    metric = len(row) > value and any(row[value - 2 : value + 1]) and not any(row[value + 1 :])
    return [*row, *[""] * short] if short > 0 and metric else row


def _long_result(number: int, rows: Sequence[PageRow], mark: str) -> Result:
    """The result of one ID's rows: each is a metric, or a rule's finding."""
    metrics: dict[str, Metric] = {}
    findings = []
    for row in rows:
        name = row["Metric Name"]
        name = LABELS.get(name, name if spec_of(name) is not None else "")
        metric = raw_page.cell(row.get("Metric Value", row.get("Average", "")), row["Metric Unit"].strip(), mark)
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
    row = {"ID": str(number)} | dict(rows[0])
    result = raw_page.result_of(row, metrics)
    if result is None:
        raise _refused("a result", raw_page.unreadable(row))
    return replace(
        result, findings=tuple(findings), averaged=int(numerals.number(row.get("Invocations", ""), mark) or 0)
    )


# --- source ---------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """The rows of one function in one file of a source page."""

    function: str
    file: str
    header: list[str]
    rows: list[Sequence[str]]

    @property
    def text(self) -> str:
        """The file's recorded lines."""
        lines = {int(row[0]): row[1] for row in self.rows if _LINE.fullmatch(row[0])}
        return "\n".join(lines.get(n, "") for n in range(1, max(lines, default=0) + 1)) + "\n"


def _launches(rows: Iterable[Sequence[str]]) -> list[list[_Block]]:
    """The blocks of each launch of a source page: one function has as many as its code has files."""
    launches: list[list[_Block]] = []
    file = function = ""
    header: list[str] = []
    for n, row in enumerate(rows, 1):
        if len(row) == 2 and row[0] == "File Path":
            file, header = row[1], []
        elif len(row) == 2 and row[0] in ("Function Name", "Kernel Name"):
            function, header = row[1], []
        elif "Source" in row:
            header = list(row)
            if not function or "Address" not in header or "Instructions Executed" not in header:
                raise _refused("lines with the instructions below them", ", ".join(header[:5]))
            earlier = launches[-1] if launches else []
            if not earlier or function != earlier[0].function or file in {block.file for block in earlier}:
                launches.append([])
            launches[-1].append(_Block(function, file, header, []))
        elif not header or len(row) != len(header):
            raise _refused(f"{len(header)} columns", f"{len(row)} on row {n} of the page")
        else:
            launches[-1][-1].rows.append(row)
    if not launches:
        raise _refused("functions", "none")
    return launches


def _source_results(
    launches: Sequence[Sequence[_Block]], code: dict[str, tuple[CountedInstruction, ...]]
) -> list[Result]:
    """A result for each function that was launched, in order: the page states neither the launch configuration nor the
    GPU. Adds the instructions of each to ``code``."""
    blocks = itertools.chain.from_iterable(launches)
    counted = ((block.rows, i, name) for block in blocks for i, c in enumerate(block.header) if (name := _count_of(c)))
    mark = numerals.decimal_mark((row[i], name, "inst") for rows, i, name in counted for row in rows)
    results: list[Result] = []
    for launch in launches:
        function = launch[0].function
        name = f"{function} {len(results)}"
        code[name], counts = _instructions(launch, mark)
        metrics = {m: Metric(sum(at.values()), "", at) for m, at in counts.items()}
        results.append(Result(len(results), function, "kernel", (0, 0, 0), (0, 0, 0), (0, 0), metrics, code=name))
    return results


def _instructions(
    blocks: Iterable[_Block], mark: str
) -> tuple[tuple[CountedInstruction, ...], dict[str, dict[str, float]]]:
    """The instructions of one launch in the order of the code, and metric → offset → count."""
    placed: dict[int, CountedInstruction] = {}
    cells: dict[str, dict[int, float]] = {}
    for block in blocks:
        at = block.header.index("Address")
        columns = {i: name for i, column in enumerate(block.header) if (name := _count_of(column))}
        line, text = 0, ""
        for row in block.rows:
            if _LINE.fullmatch(row[0]):
                line, text = int(row[0]), row[1].strip()
                continue
            if row[at] == "...":  # between stretches of code
                continue
            if not re.fullmatch(r"0x[0-9a-f]+", row[at]):
                raise _refused("an address of each instruction", repr(row[at]))
            address = int(row[at], 16)
            if address in placed:  # lines that share an instruction repeat it
                continue
            placed[address] = CountedInstruction(address, row[at + 1].strip(), block.file, line, text, {})
            for i, name in columns.items():
                value = numerals.number(row[i], mark)
                if value:
                    cells.setdefault(name, {})[address] = value
                elif value is None and row[i] not in ("", "-"):
                    raise _refused(f"a count under {block.header[i]}", repr(row[i][:40]))
    start = min(placed, default=0)
    code = tuple(replace(placed[address], offset=address - start) for address in sorted(placed))
    return code, {BY_ADDRESS[n]: {hex(a - start): v for a, v in by.items()} for n, by in cells.items()}


def _count_of(column: str) -> str:
    """A listing's name for a column of the source page; empty for those that listings leave out."""
    reason = column.removeprefix("stall_")
    name = f"stall_{_REASONS.get(reason, reason)}" if reason != column else _COUNTS.get(column, "")
    return name if name in BY_ADDRESS else ""
