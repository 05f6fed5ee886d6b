"""Pages of a report as ncu prints them with ``--csv``: raw, details (also the long form that ``--metrics`` prints by
itself), summary and source.

Units are those of the page, base or automatic. A page that is cut short, mixes two conventions of writing numbers, or
is in a form that is not known here is refused, with the command that exports it right.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flashcore.errors import RecordError
from flashcore.measure.profile.ncu_facts import BY_ADDRESS
from flashcore.model.catalogue import spec_of
from flashcore.model.record import Instruction
from flashcore.readers.ncu import numerals
from flashcore.readers.ncu.raw_page import Dim3
from flashcore.readers.ncu.results import Finding, Metric, Report, Result, Workload

#: Labels of sections that name one metric in every version of ncu → that metric.
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
_INSTANCES = re.compile(r"([^\s(]*)\s*\((.*)\)", re.DOTALL)
#: Columns of the source page → their names in a listing; other columns are ignored.
_SHORT = {"dispatch": "dispatch_stall", "imc": "imc_miss", "lg": "lg_throttle", "long_sb": "long_scoreboard",
          "math": "math_pipe_throttle", "mio": "mio_throttle", "no_inst": "no_instruction", "sleep": "sleeping",
          "short_sb": "short_scoreboard", "tex": "tex_throttle"}  # fmt: skip
_COUNTED = {"# Samples": "samples", "Instructions Executed": "executed", "L1 Wavefronts Shared": "wavefronts",
            "L1 Wavefronts Shared Ideal": "wavefronts_ideal"}  # fmt: skip
_CACHES = "cache control unknown"  # a page does not say how it was profiled
Row = Mapping[str, str]


def read(path: Path, text: str) -> Report:
    """Reads a page.

    Raises:
        RecordError: it cannot be read without guessing; names the command that exports it correctly.
    """
    lines = [line for line in io.StringIO(text.removeprefix("\ufeff")) if not line.startswith("==")]
    page = _Page(path)
    start = next((i for i, line in enumerate(lines) if _BEGIN.match(line)), None)
    if start is None:
        raise page.refused("a header with Kernel Name, or with File Path and Function Name", "none")
    if odd := next((line for line in lines[:start] if len(re.findall("[\"'][,;][\"']", line)) > 8), None):
        raise page.refused("no rows above the header", repr(odd[:40]))
    if not lines[-1].endswith("\n"):
        raise page.refused("whole lines", f"the last one cut short: {lines[-1][-40:]!r}")
    delimiter = ";" if re.match(r'("[^"]*"|[^",;]*);', lines[start]) else ","
    try:
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        rows = list(csv.reader(io.StringIO("".join(lines[start:])), strict=True, delimiter=delimiter))
    except csv.Error as error:
        raise page.refused("CSV", f"what is none ({error})") from error
    rows = [row for row in rows if row]
    if rows[0][0] in ("File Path", "Function Name", "Kernel Name"):
        return page.source(rows)
    return page.table(rows)


_BEGIN = re.compile(r'"?(ID|Process ID|File Path|Function Name|Kernel Name)"?\s*[,;]')


@dataclass(frozen=True)
class _Page:
    path: Path
    exported: str = "--page raw --print-units base --print-metric-instances details"
    mark: str = field(default=".")

    def refused(self, expected: str, found: str) -> RecordError:
        return RecordError(
            f"{self.path.name}: expected {expected}, found {found}\n"
            f"  hint: LC_ALL=C ncu --import REPORT.ncu-rep --csv {self.exported} > {self.path.stem}.csv"
        )

    def marked(self, cells: Iterable[str]) -> _Page:
        """The same page, read by the convention of its own numbers."""
        try:
            return replace(self, mark=numerals.decimal_mark(cells))
        except numerals.Undecided as error:
            raise self.refused("numbers in one convention that can be told", str(error)) from error

    # --- raw, details, summary --------------------------------------------------------------------

    def table(self, rows: Sequence[Sequence[str]]) -> Report:
        header = list(rows[0])
        rows = [_padded(row, header) for row in rows]
        odd = next((n for n, row in enumerate(rows, 1) if len(row) != len(header)), None)
        if odd is not None or len(set(header)) < len(header):
            what = f"{len(rows[odd - 1])} on row {odd}" if odd else "a column twice"
            raise self.refused(f"the header's {len(header)} columns, each once", what)
        wanted = ("Kernel Name", "Block Size", "Grid Size", "CC")
        if missing := [c for c in wanted if c not in header]:
            raise self.refused(f"the columns {', '.join(wanted)}", f"none called {', '.join(missing)}")
        body = [dict(zip(header, row, strict=True)) for row in rows[1:]]
        long, summary = "Metric Value" in header, "Invocations" in header
        if long or summary:
            page = self.marked(row[c] for row in body for c in ("Metric Value", "Minimum", "Average") if c in row)
            found = list(page._long(body, "Average" if summary else "Metric Value"))
        else:
            if not body or body[0].get("ID"):
                raise self.refused("a row of units below the header", "none")
            names = [c for c in header if spec_of(c) is not None]
            page = self.marked(part for row in body[1:] for name in names for part in _parts(row[name]))
            found = [page._raw(n, row, names, body[0]) for n, row in enumerate(body[1:])]
        if not found:
            raise self.refused("results", "none below the header")
        ids = [r.id for r in found]
        if ids != sorted(set(ids)):
            raise self.refused("each result once, in order", "doubled or disordered IDs")
        return Report(self.path.name, tuple(found), reader="flashcore's reader of CSV")

    def _raw(self, n: int, row: Row, names: Iterable[str], units: Row) -> Result:
        metrics = {name: m for name in names if (m := self._metric(row[name], units[name].strip())) is not None}
        return self._result(n, row, metrics)

    def _metric(self, cell: str, unit: str) -> Metric | None:
        cell = cell.strip()
        if cell.lower() in ("", "n/a", "(n/a)", "no data", "<error>"):
            return None
        instances: dict[str, float] = {}
        if match := _INSTANCES.fullmatch(cell):
            head = numerals.number(match[1], self.mark)
            if head is not None:
                pairs = [part.strip().rpartition(": ") for part in match[2].split(";")]
                values = {name: numerals.number(text, self.mark) for name, _, text in pairs}
                known = {name: value for name, value in values.items() if value is not None and name}
                return Metric(head, unit, known if len(known) == len(pairs) else instances)
        value = numerals.number(cell, self.mark)
        return Metric(cell if value is None else value, unit)

    def _long(self, body: Sequence[Row], column: str) -> Iterator[Result]:
        """A result for each run of rows of one ID; of a summary, of one kernel and configuration."""
        keys = ("ID",) if "ID" in body[0] else ("Kernel Name", "Block Size", "Grid Size", "Device")
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in body:
            groups.setdefault(tuple(row[k] for k in keys), []).append(row)
        named = [{row["Metric Name"] for row in rows} for rows in groups.values()]
        if len(named) > 2 and (lost := set.intersection(*named[:-1]) - named[-1]):
            raise self.refused("every metric of the last result", f"it without {sorted(lost)[0]}: cut short")
        for n, rows in enumerate(groups.values()):
            metrics: dict[str, Metric] = {}
            findings = []
            for row in rows:
                name = row["Metric Name"]
                name = LABELS.get(name, name if spec_of(name) is not None else "")
                metric = self._metric(row[column], row["Metric Unit"].strip())
                if name and metric is not None and metrics.setdefault(name, metric).value != metric.value:
                    raise self.refused(f"one value of {name} for a result", f"{metrics[name].value} and {metric.value}")
                if row.get("Rule Name"):
                    estimate = numerals.number(row.get("Estimated Speedup", ""), self.mark)
                    scope = row.get("Estimated Speedup Type", "").lower()
                    findings.append(Finding(row["Rule Name"], row["Rule Description"], estimate, scope))
            if not metrics:
                raise self.refused("metrics by ncu's names, or labels that name one", "none of them")
            averaged = int(rows[0].get("Invocations") or 0)
            yield replace(self._result(n, rows[0], metrics), findings=tuple(findings), averaged=averaged)

    def _result(self, n: int, row: Row, metrics: Mapping[str, Metric]) -> Result:
        grid, block = (_dims(row[c]) for c in ("Grid Size", "Block Size"))
        cc = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", row["CC"])
        number = row.get("ID", str(n))
        if grid is None or block is None or cc is None or not number.isdecimal() or not row["Kernel Name"]:
            found = {c: row.get(c, "")[:40] for c in ("ID", "Kernel Name", "Grid Size", "Block Size", "CC")}
            raise self.refused("ID, name, grid, block and compute capability of each result", str(found))
        kernel = row["Kernel Name"]
        workload: Workload = "graph" if kernel == "graph" else "range" if kernel == "range" else "kernel"
        ranges = next((v for c, v in row.items() if "Push/Pop_Range" in c), "")
        return Result(
            id=int(number),
            kernel=kernel,
            workload=workload,
            grid=grid if workload == "kernel" else (0, 0, 0),
            block=block if workload == "kernel" else (0, 0, 0),
            cc=(int(cc[1]), int(cc[2])),
            metrics=metrics,
            ranges=tuple(":".join(part.split(":")[:2]) for part in re.findall(r'"([^"]*)"', ranges)),
            caches=_CACHES,
        )

    # --- source -----------------------------------------------------------------------------------

    def source(self, rows: Sequence[Sequence[str]]) -> Report:
        """A result for each function that was launched, in order: the page states neither the launch configuration nor
        the GPU."""
        view = replace(self, exported="--page source --print-source cuda,sass")
        blocks: list[_Block] = []
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
                    raise view.refused("lines with the instructions below them", ", ".join(header[:5]))
                blocks.append(_Block(function, file, header, []))
            elif not header or len(row) != len(header):
                raise view.refused(f"{len(header)} columns", f"{len(row)} on row {n} of the page")
            else:
                blocks[-1].rows.append(row)
        page = view.marked(cell for block in blocks for row in block.rows for cell in row[4:])
        results: list[Result] = []
        code: dict[str, tuple[Instruction, ...]] = {}
        sources: dict[str, str] = {}
        for own in _launches(blocks):
            sources |= {block.file: block.text for block in own if block.file}
            name = f"{own[0].function} {len(results)}"
            instructions, counted = page._instructions(own)
            code[name] = instructions
            metrics = {m: Metric(sum(at.values()), "", at) for m, at in counted.items()}
            results.append(Result(len(results), own[0].function, "kernel", (0, 0, 0), (0, 0, 0), (0, 0), metrics,
                                  code=name, caches=_CACHES))  # fmt: skip
        if not results:
            raise view.refused("functions", "none")
        return Report(self.path.name, tuple(results), sources, code, "flashcore's reader of CSV")

    def _instructions(self, blocks: Iterable[_Block]) -> tuple[tuple[Instruction, ...], dict[str, dict[str, float]]]:
        """The instructions of one launch in the order of the code, and metric → offset → what was counted."""
        placed: dict[int, Instruction] = {}
        cells: dict[str, dict[int, float]] = {}
        for block in blocks:
            at = block.header.index("Address")
            columns = {i: name for i, c in enumerate(block.header) if (name := _listed(c))}
            line, text = 0, ""
            for row in block.rows:
                if row[0]:
                    line, text = int(row[0]), row[1].strip()
                    continue
                if row[at] == "...":  # between stretches of code
                    continue
                if not re.fullmatch(r"0x[0-9a-f]+", row[at]):
                    raise self.refused("an address of each instruction", repr(row[at]))
                address = int(row[at], 16)
                if address in placed:  # lines that share an instruction repeat it
                    continue
                placed[address] = Instruction(address, row[at + 1].strip(), block.file, line, text, {})
                for i, name in columns.items():
                    value = numerals.number(row[i], self.mark)
                    if value:
                        cells.setdefault(name, {})[address] = value
                    elif value is None and row[i] not in ("", "-"):
                        raise self.refused(f"a count under {block.header[i]}", repr(row[i][:40]))
        start = min(placed, default=0)
        code = tuple(replace(placed[address], offset=address - start) for address in sorted(placed))
        return code, {BY_ADDRESS[n]: {hex(a - start): v for a, v in by.items()} for n, by in cells.items()}


@dataclass(frozen=True)
class _Block:
    """What a source page holds of one function in one file."""

    function: str
    file: str
    header: list[str]
    rows: list[Sequence[str]]

    @property
    def text(self) -> str:
        """The lines of the file as far as they are there."""
        known = {int(row[0]): row[1] for row in self.rows if row[0].isdecimal()}
        return "\n".join(known.get(n, "") for n in range(1, max(known, default=0) + 1)) + "\n"


def _launches(blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
    """The blocks of each launch: one function has as many as its code has files."""
    own: list[_Block] = []
    for block in blocks:
        if own and (block.function != own[0].function or block.file in {b.file for b in own}):
            yield own
            own = []
        own.append(block)
    if own:
        yield own


def _padded(row: Sequence[str], header: Sequence[str]) -> Sequence[str]:
    """The details page leaves out the empty columns of rules behind a metric's value."""
    short = len(header) - len(row)
    value = header.index("Metric Value") if "Metric Value" in header else len(header)
    return [*row, *[""] * short] if short > 0 and len(row) > value and not any(row[value + 1 :]) else row


def _listed(column: str) -> str:
    """What a listing calls a column of the source page; empty for those that it leaves out."""
    reason = column.removeprefix("stall_")
    name = f"stall_{_SHORT.get(reason, reason)}" if reason != column else _COUNTED.get(column, "")
    return name if name in BY_ADDRESS else ""


def _parts(cell: str) -> Iterator[str]:
    """The numbers of a cell: its value, and those of its instances."""
    match = _INSTANCES.fullmatch(cell.strip())
    if match is None:
        yield cell
        return
    yield match[1]
    yield from (part.rpartition(": ")[2] for part in match[2].split(";"))


def _dims(text: str) -> Dim3 | None:
    match = re.fullmatch(r"\(\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\)", text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
